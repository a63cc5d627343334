//! Seeds of generators that are not security-sensitive: uids, generated names, jitter.

/// A seed from the operating system, for the edge of a program. Two processes get the same one with
/// a probability of 1 in 2⁶⁴. Everything below the edge receives its seed as an argument.
///
/// # Panics
///
/// If the operating system gives no randomness, as the standard library's `HashMap` does.
pub fn from_entropy() -> u64 {
    match getrandom::u64() {
        Ok(seed) => seed,
        Err(error) => panic!("the operating system gives no randomness: {error}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_differ() {
        assert_ne!(super::from_entropy(), super::from_entropy());
    }
}
