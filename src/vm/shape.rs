//! The shape of a guest: nodes, last-level caches, cores, threads and distances.
//!
//! ```text
//! SHAPE     = COUNT "n" [COUNT "l"] COUNT "c" [COUNT "t"] [":" DISTANCES]
//! DISTANCES = "ring" | "line" | "dist=" ROW (";" ROW)*      ROW = NUMBER ("," NUMBER)*
//! ```
//!
//! `4n4c` is 4 nodes of 4 CPUs; `2n2l2c2t` is 2 nodes, each with 2 last-level caches of 2 cores with
//! 2 threads. A node is a socket and a last-level cache is a die, because that is what QEMU cuts its
//! L3 by. Without DISTANCES two nodes are 21 apart, four are 12, 20 and 22 apart (so that the guest
//! has three NUMA levels), and any other number is a ring.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// More need interrupt remapping, which is not set up.
const CPUS_MAX: usize = 255;
/// ACPI's value for a node itself.
const LOCAL: u8 = 10;
/// ACPI's value for "cannot be reached".
const UNREACHABLE: u8 = 255;
/// The 16-way machine of 2009: two pairs of near nodes.
const FOUR_NODES: [[u8; 4]; 4] =
    [[10, 12, 20, 22], [12, 10, 22, 20], [20, 22, 10, 12], [22, 20, 12, 10]];
const TWO_NODES: u8 = 21;

/// What a guest looks like. All counts are at least one; `distances` is square, one row per node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub nodes: usize,
    pub llcs_per_node: usize,
    pub cores_per_llc: usize,
    pub threads_per_core: usize,
    pub distances: Vec<Vec<u8>>,
}

impl Shape {
    pub fn cpus_per_node(&self) -> usize {
        self.llcs_per_node * self.cores_per_llc * self.threads_per_core
    }

    pub fn cpus(&self) -> usize {
        self.nodes * self.cpus_per_node()
    }

    /// QEMU's `-smp`.
    pub fn smp(&self) -> String {
        format!(
            "{},sockets={},dies={},cores={},threads={}",
            self.cpus(),
            self.nodes,
            self.llcs_per_node,
            self.cores_per_llc,
            self.threads_per_core
        )
    }

    /// virtme-ng's topology options; the memory in MiB is dealt out evenly.
    pub fn virtme_args(&self, memory_mib: u64) -> Vec<String> {
        let per_node = memory_mib / self.nodes as u64;
        let mut args = vec!["--memory".into(), format!("{}M", per_node * self.nodes as u64)];
        args.extend(["--cpus".into(), self.smp()]);
        for node in 0..self.nodes {
            let first = node * self.cpus_per_node();
            let last = first + self.cpus_per_node() - 1;
            args.extend(["--numa".into(), format!("{per_node}M,cpus={first}-{last}")]);
        }
        args.extend(self.distance_args());
        args
    }

    fn distance_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate().filter(|(to, _)| *to != from) {
                args.push("--numa-distance".into());
                args.push(format!("src={from},dst={to},val={distance}"));
            }
        }
        args
    }

    fn check_size(&self) -> Result<(), String> {
        let counts = [self.nodes, self.llcs_per_node, self.cores_per_llc, self.threads_per_core];
        let cpus = counts.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
        match cpus {
            Some(0) => Err("a count is 0".into()),
            Some(1..=CPUS_MAX) => Ok(()),
            _ => Err(format!("it has more than {CPUS_MAX} CPUs")),
        }
    }

    fn check_distances(&self) -> Result<(), String> {
        let square = self.distances.len() == self.nodes
            && self.distances.iter().all(|row| row.len() == self.nodes);
        if !square {
            return Err(format!("{0} nodes need {0} rows of {0} distances", self.nodes));
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                check_distance(from, to, *distance)?;
            }
        }
        Ok(())
    }
}

fn check_distance(from: usize, to: usize, distance: u8) -> Result<(), String> {
    if from == to && distance != LOCAL {
        return Err(format!("the distance of node {from} to itself is {distance}, not {LOCAL}"));
    }
    if from != to && !(LOCAL + 1..UNREACHABLE).contains(&distance) {
        return Err(format!(
            "the distance from node {from} to node {to} is {distance}, not in 11..254"
        ));
    }
    Ok(())
}

impl FromStr for Shape {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|why| {
            Error::usage(format!(
                "shape \"{text}\": {why}; right ones are 4n4c, 2n2l2c2t, 8n2c:ring, 2n4c:dist=10,20;20,10"
            ))
        })
    }
}

impl fmt::Display for Shape {
    /// The full form, which says every count and distance.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { nodes, llcs_per_node, cores_per_llc, threads_per_core, .. } = self;
        write!(f, "{nodes}n{llcs_per_node}l{cores_per_llc}c{threads_per_core}t:dist=")?;
        let rows: Vec<String> = self.distances.iter().map(|row| format_row(row)).collect();
        f.write_str(&rows.join(";"))
    }
}

fn format_row(row: &[u8]) -> String {
    row.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

fn parse(text: &str) -> Result<Shape, String> {
    let (counts, modifier) = match text.split_once(':') {
        Some((counts, modifier)) => (counts, Some(modifier)),
        None => (text, None),
    };
    let mut shape = parse_counts(counts)?;
    shape.check_size()?;
    shape.distances = parse_distances(modifier, shape.nodes)?;
    shape.check_distances()?;
    Ok(shape)
}

fn parse_counts(text: &str) -> Result<Shape, String> {
    let mut rest = text;
    let nodes =
        take_count(&mut rest, 'n')?.ok_or("it does not begin with a number of nodes (4n)")?;
    let llcs_per_node = take_count(&mut rest, 'l')?.unwrap_or(1);
    let cores_per_llc = take_count(&mut rest, 'c')?.ok_or("it has no number of cores (4c)")?;
    let threads_per_core = take_count(&mut rest, 't')?.unwrap_or(1);
    if !rest.is_empty() {
        return Err(format!("\"{rest}\" is too much, the order is n, l, c, t"));
    }
    let distances = Vec::new();
    Ok(Shape { nodes, llcs_per_node, cores_per_llc, threads_per_core, distances })
}

/// Takes "4n" off the front of "4n4c" when the unit is 'n'; leaves any other unit alone.
fn take_count(rest: &mut &str, unit: char) -> Result<Option<usize>, String> {
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Some(after) = rest[digits..].strip_prefix(unit).filter(|_| digits > 0) else {
        return Ok(None);
    };
    let count = rest[..digits].parse().map_err(|_| format!("{} is too large", &rest[..digits]))?;
    *rest = after;
    Ok(Some(count))
}

fn parse_distances(modifier: Option<&str>, nodes: usize) -> Result<Vec<Vec<u8>>, String> {
    match modifier {
        None => default_distances(nodes),
        Some("ring") => ring(nodes),
        Some("line") => line(nodes),
        Some(other) => match other.strip_prefix("dist=") {
            Some(matrix) => matrix.split(';').map(parse_row).collect(),
            None => Err(format!("\":{other}\" is none of :ring, :line and :dist=")),
        },
    }
}

fn parse_row(row: &str) -> Result<Vec<u8>, String> {
    row.split(',')
        .map(|number| number.parse().map_err(|_| format!("\"{number}\" is not a distance")))
        .collect()
}

fn default_distances(nodes: usize) -> Result<Vec<Vec<u8>>, String> {
    match nodes {
        2 => matrix(2, |_, _| Some(TWO_NODES)),
        4 => Ok(FOUR_NODES.iter().map(|row| row.to_vec()).collect()),
        _ => ring(nodes),
    }
}

/// 16, 22, 28, ... by hops: what was measured on `ring8`.
fn ring(nodes: usize) -> Result<Vec<Vec<u8>>, String> {
    matrix(nodes, |from, to| {
        let way = from.abs_diff(to);
        u8::try_from(10 + 6 * way.min(nodes - way)).ok()
    })
}

/// 20, 30, 40, ... by hops.
fn line(nodes: usize) -> Result<Vec<Vec<u8>>, String> {
    matrix(nodes, |from, to| u8::try_from(10 + 10 * from.abs_diff(to)).ok())
}

fn matrix(
    nodes: usize,
    distance: impl Fn(usize, usize) -> Option<u8>,
) -> Result<Vec<Vec<u8>>, String> {
    let cell = |from, to| if from == to { Some(LOCAL) } else { distance(from, to) };
    (0..nodes)
        .map(|from| (0..nodes).map(|to| cell(from, to)).collect::<Option<Vec<u8>>>())
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{nodes} nodes are too many for this pattern of distances"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(text: &str) -> Shape {
        text.parse().unwrap()
    }

    fn complaint(text: &str) -> String {
        let error = text.parse::<Shape>().unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.message
    }

    #[test]
    fn four_nodes_have_three_distances() {
        let four = shape("4n4c");
        assert_eq!(four.cpus(), 16);
        assert_eq!(four.smp(), "16,sockets=4,dies=1,cores=4,threads=1");
        assert_eq!(four.distances[1], [12, 10, 22, 20]);
    }

    #[test]
    fn caches_and_threads_multiply() {
        let epyc = shape("2n2l2c2t");
        assert_eq!(epyc.smp(), "16,sockets=2,dies=2,cores=2,threads=2");
        assert_eq!(epyc.distances, [[10, 21], [21, 10]]);
    }

    #[test]
    fn ring_and_line_count_hops() {
        assert_eq!(shape("8n2c:ring").distances[0], [10, 16, 22, 28, 34, 28, 22, 16]);
        assert_eq!(shape("4n4c:line").distances[1], [20, 10, 20, 30]);
    }

    #[test]
    fn memory_and_cpus_are_dealt_out_to_the_nodes() {
        let args = shape("2n2c:dist=10,15;18,10").virtme_args(1000).join(" ");
        assert_eq!(
            args,
            "--memory 1000M --cpus 4,sockets=2,dies=1,cores=2,threads=1 \
             --numa 500M,cpus=0-1 --numa 500M,cpus=2-3 \
             --numa-distance src=0,dst=1,val=15 --numa-distance src=1,dst=0,val=18"
        );
    }

    #[test]
    fn a_wrong_shape_is_told_why_and_shown_a_right_one() {
        let wrong = [
            ("", "does not begin with a number of nodes"),
            ("4c", "does not begin with a number of nodes"),
            ("4n", "no number of cores"),
            ("4n4c2l", "\"2l\" is too much"),
            ("0n4c", "a count is 0"),
            ("64n64c", "more than 255 CPUs"),
            ("99999999999999999999n1c", "is too large"),
            ("4n4c:mesh", "none of :ring"),
            ("2n2c:dist=10,20", "2 nodes need 2 rows"),
            ("2n2c:dist=10,20;20,11", "node 1 to itself is 11"),
            ("2n2c:dist=10,10;20,10", "not in 11..254"),
            ("2n2c:dist=10,x;20,10", "\"x\" is not a distance"),
            ("40n1c:line", "too many"),
        ];
        for (text, why) in wrong {
            let message = complaint(text);
            assert!(message.contains(why), "{text}: {message}");
            assert!(message.contains("4n4c, 2n2l2c2t"), "{text}: {message}");
        }
    }

    fn any_shape() -> impl Strategy<Value = Shape> {
        (1usize..8, 1usize..4, 1usize..4, 1usize..3).prop_flat_map(|(n, l, c, t)| {
            proptest::collection::vec(11u8..255, n * n).prop_map(move |cells| Shape {
                nodes: n,
                llcs_per_node: l,
                cores_per_llc: c,
                threads_per_core: t,
                distances: matrix(n, |from, to| Some(cells[from * n + to])).unwrap(),
            })
        })
    }

    proptest! {
        #[test]
        fn the_full_form_reads_back(shape in any_shape()) {
            prop_assert_eq!(shape.to_string().parse::<Shape>().unwrap(), shape);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,12}") {
            let _ = text.parse::<Shape>();
        }

        #[test]
        fn no_near_miss_panics(text in "[0-9nlct:;,ringdst=]{0,20}") {
            let _ = text.parse::<Shape>();
        }
    }
}
