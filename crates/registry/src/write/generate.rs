//! Uids and generated names, from the registry's seeded random number generator.
use crate::allocate::NewObject;
use crate::shared::Inner;
use crate::uid::uid;
use rand::Rng;
use setpoint_object::name::{GENERATE_NAME_BASE_MAX, GENERATED_ALPHABET};

/// How many names are tried for a `generateName` before the answer is 409.
///
/// Eight, as in kube-apiserver. Eight collisions in a row mean that the base is crowded.
pub(super) const GENERATE_ATTEMPTS_MAX: usize = 8;
/// Random characters at the end of a generated name.
const SUFFIX_CHARACTERS: usize = 5;

impl Inner {
    /// What an object that is born now gets.
    pub(crate) fn birth(&self) -> NewObject<'_> {
        NewObject { rng: &self.rng, now: self.clock.now() }
    }
    /// A random (version 4) UUID.
    pub(crate) fn uid(&self) -> String {
        uid(&self.rng)
    }
    /// `base`, cut to 58 characters, and five random ones.
    pub(crate) fn generated_name(&self, base: &str) -> String {
        let mut name: String = base.chars().take(GENERATE_NAME_BASE_MAX).collect();
        let mut rng = self.rng.lock();
        for _ in 0..SUFFIX_CHARACTERS {
            name.push(char::from(
                GENERATED_ALPHABET[rng.random_range(0..GENERATED_ALPHABET.len())],
            ));
        }
        name
    }
}
