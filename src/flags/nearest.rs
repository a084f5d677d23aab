//! "Did you mean": the right words that are nearest to a wrong one.

/// "; did you mean A or B?", or nothing when no candidate is near.
pub(crate) fn suggestion(word: &str, candidates: &[&str]) -> String {
    match nearest(word, candidates) {
        near if near.is_empty() => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

/// Candidates that contain the word, else those the fewest edits away.
pub(super) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Vec<&'a str> {
    let word = word.to_ascii_uppercase();
    let contains = |candidate: &str| word.len() > 2 && candidate.to_uppercase().contains(&word);
    let holding: Vec<&str> = candidates.iter().copied().filter(|c| contains(c)).collect();
    match holding.is_empty() {
        true => fewest_edits(&word, candidates),
        false => holding,
    }
}

fn fewest_edits<'a>(word: &str, candidates: &[&'a str]) -> Vec<&'a str> {
    let edits = |candidate: &str| strsim::damerau_levenshtein(word, &candidate.to_uppercase());
    let fewest = candidates.iter().map(|c| edits(c)).min().unwrap_or(usize::MAX);
    let is_near = |candidate: &&str| edits(candidate) == fewest && fewest <= tolerated(candidate);
    candidates.iter().copied().filter(is_near).collect()
}

/// Chosen: a third of the letters, at least one, so that two-letter names can still be mistyped.
fn tolerated(candidate: &str) -> usize {
    (candidate.len() / 3).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [&str; 3] = ["WAKE_AFFINE", "BALANCE_WAKE", "BALANCE_FORK"];

    #[test]
    fn a_typing_error_finds_its_word() {
        assert_eq!(nearest("wake_affin", &FLAGS), ["WAKE_AFFINE"]);
        assert_eq!(nearest("BALNACE_FORK", &FLAGS), ["BALANCE_FORK"]);
    }

    #[test]
    fn a_part_finds_every_word_that_has_it() {
        assert_eq!(suggestion("wake", &FLAGS), "; did you mean WAKE_AFFINE or BALANCE_WAKE?");
    }

    #[test]
    fn a_foreign_word_finds_none() {
        assert_eq!(suggestion("SHARE_LLC", &FLAGS), "");
        assert_eq!(suggestion("", &FLAGS), "");
        assert_eq!(suggestion("x", &[]), "");
    }
}
