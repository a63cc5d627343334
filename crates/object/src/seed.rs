//! Seeds of generators that are not secret: uids, generated names, jitter.

/// A seed from the operating system, for the edge of a program: no two processes get the same one,
/// except by a chance of 1 in 2⁶⁴ per pair. Everything below the edge is given its seed.
///
/// # Panics
///
/// When the operating system gives no randomness, as the standard library's `HashMap` does.
pub fn from_entropy() -> u64 {
    match getrandom::u64() {
        Ok(seed) => seed,
        Err(error) => panic!("the operating system gives no randomness: {error}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_seeds_are_the_same() {
        assert_ne!(super::from_entropy(), super::from_entropy());
    }
}
