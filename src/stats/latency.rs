//! Histograms of the time from wakeup to run: what their buckets mean, and quantiles.

use super::{NR_BUCKETS, NR_LEVELS};

/// The histogram of wakeups to the waker's own CPU; those of levels are at the levels' indices.
pub const SAME_CPU: usize = NR_LEVELS;
/// Its name, where levels have theirs.
pub const SAME_CPU_NAME: &str = "CPU";

pub type Histogram = [u64; NR_BUCKETS];

/// The shortest time of a bucket, in us; its times are shorter than the next one's shortest.
pub fn shortest_us(bucket: usize) -> u64 {
    if bucket == 0 { 0 } else { 1 << (bucket - 1) }
}

/// The bucket whose shortest time this is; none where there is none.
pub fn bucket_of(shortest: u64) -> Option<usize> {
    (0..NR_BUCKETS).find(|&bucket| shortest_us(bucket) == shortest)
}

/// The bucket of the value that this share (0..=1) of the times do not exceed; none without
/// times.
pub fn quantile(histogram: &Histogram, share: f64) -> Option<usize> {
    let total: u64 = histogram.iter().sum();
    let rank = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    histogram.iter().position(|times| {
        seen += times;
        seen >= rank
    })
}

/// A bucket in words: what all its times are below, or at least, in us.
pub fn bound(bucket: usize) -> String {
    match bucket + 1 < NR_BUCKETS {
        true => format!("<{}", shortest_us(bucket + 1)),
        false => format!(">={}", shortest_us(bucket)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(times: &[(usize, u64)]) -> Histogram {
        let mut histogram = [0; NR_BUCKETS];
        times.iter().for_each(|(bucket, count)| histogram[*bucket] = *count);
        histogram
    }

    #[test]
    fn buckets_double() {
        let shortest: Vec<u64> = (0..5).map(shortest_us).collect();
        assert_eq!(shortest, [0, 1, 2, 4, 8]);
        (0..NR_BUCKETS).for_each(|b| assert_eq!(bucket_of(shortest_us(b)), Some(b)));
        assert_eq!(bucket_of(3), None);
        assert_eq!((bound(0), bound(3)), ("<1".to_owned(), "<8".to_owned()));
        assert!(bound(NR_BUCKETS - 1).starts_with(">="));
    }

    #[test]
    fn a_quantile_is_the_bucket_that_reaches_it() {
        let times = histogram(&[(1, 50), (4, 49), (9, 1)]);
        let at = |share| quantile(&times, share);
        assert_eq!((at(0.0), at(0.5), at(0.51)), (Some(1), Some(1), Some(4)));
        assert_eq!((at(0.99), at(0.999), at(1.0)), (Some(4), Some(9), Some(9)));
        assert_eq!(quantile(&histogram(&[]), 0.5), None);
    }
}
