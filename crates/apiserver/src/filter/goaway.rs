//! Sampled goodbyes: clients connect again now and then, perhaps to another server behind a load
//! balancer.

use parking_lot::Mutex;
use rand::Rng as _;
use rand::rngs::SmallRng;

/// A chance outside of the limits.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the chance of a GOAWAY is {0}, and cannot be less than 0 or greater than 0.02")]
pub struct GoAwayChanceError(f64);

/// The chance that a request over HTTP/2 is the last of its connection, as `--goaway-chance`: from
/// 0, which is never, to 0.02. The client gets a `GOAWAY`. Its requests in progress end as they
/// would otherwise, long ones too, and new ones need a new connection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GoAwayChance(f64);

impl GoAwayChance {
    /// The most, as kube-apiserver's: one in fifty requests.
    pub const MAX: f64 = 0.02;

    /// A chance.
    ///
    /// # Errors
    ///
    /// Below 0 or above [`GoAwayChance::MAX`].
    pub fn new(chance: f64) -> Result<Self, GoAwayChanceError> {
        match (0.0..=Self::MAX).contains(&chance) {
            true => Ok(Self(chance)),
            false => Err(GoAwayChanceError(chance)),
        }
    }

    /// Whether a request is the last of its connection. Without a chance nothing is drawn.
    pub(crate) fn falls(self, version: http::Version, rng: &Mutex<SmallRng>) -> bool {
        self.0 > 0.0 && version == http::Version::HTTP_2 && rng.lock().random::<f64>() < self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Version;
    use rand::SeedableRng as _;

    #[test]
    fn the_chance_has_limits() {
        for wrong in [-0.001, 0.021, 1.0, f64::NAN, f64::INFINITY] {
            assert!(GoAwayChance::new(wrong).is_err(), "{wrong}");
        }
        assert_eq!(GoAwayChance::new(0.0).unwrap(), GoAwayChance::default());
        GoAwayChance::new(0.02).unwrap();
    }

    #[test]
    fn it_falls_as_often_as_it_says_and_over_http_2_only() {
        let rng = Mutex::new(SmallRng::seed_from_u64(7));
        let chance = GoAwayChance::new(0.02).unwrap();
        let n = (0..10_000).filter(|_| chance.falls(Version::HTTP_2, &rng)).count();
        assert!((150..250).contains(&n), "{n}");
        let before = rng.lock().clone();
        assert!(!(0..10_000).any(|_| chance.falls(Version::HTTP_11, &rng)));
        assert!(!(0..10_000).any(|_| GoAwayChance::default().falls(Version::HTTP_2, &rng)));
        assert_eq!(*rng.lock(), before);
    }
}
