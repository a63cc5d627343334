//! Retries changes that conflict.

use std::time::Duration;

use kube_core::params::{Patch, PatchParams};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use setpoint_informer::Cacheable;
use setpoint_object::seed;

use super::{Api, Call, ClientError, MergeFrom, Subresource, api::decode};
use crate::request::Request;

/// How often a conflicting change is tried, and the delays between tries.
///
/// The `n`-th delay is `base * factor^n`, plus up to `jitter` of it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Retry {
    /// The number of tries, including the first.
    pub n_tries: u32,
    /// The first delay.
    pub base: Duration,
    /// The growth of each delay.
    pub factor: f64,
    /// The random part of a delay, relative to it.
    pub jitter: f64,
    /// The seed of the jitter. `None`: derived from the pass, and so from the manager's seed.
    /// Outside of a pass: from the operating system's entropy.
    pub seed: Option<u64>,
}

impl Retry {
    /// For an object that few others write: five tries, 10 ms apart, as client-go's
    /// `retry.DefaultRetry`.
    pub const FEW_WRITERS: Self =
        Self { n_tries: 5, base: Duration::from_millis(10), factor: 1.0, jitter: 0.1, seed: None };

    /// For an object that many write at once: four tries, 10 ms apart, then 50, then 250, as
    /// client-go's `retry.DefaultBackoff`.
    pub const MANY_WRITERS: Self =
        Self { n_tries: 4, base: Duration::from_millis(10), factor: 5.0, jitter: 0.1, seed: None };

    /// Sets the seed of the jitter.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// The random numbers of one call, within the pass of this id or outside.
    fn rng(&self, pass: Option<u128>) -> SmallRng {
        let pass = pass.map(|pass| u64::try_from(pass & u128::from(u64::MAX)).unwrap_or(0));
        let seed = match (self.seed, pass) {
            (Some(seed), pass) => seed ^ pass.unwrap_or(0),
            (None, Some(pass)) => pass,
            (None, None) => seed::from_entropy(),
        };
        SmallRng::seed_from_u64(seed)
    }

    fn wait(&self, n: u32, rng: &mut SmallRng) -> Duration {
        let n = i32::try_from(n).unwrap_or(i32::MAX);
        let seconds = self.base.as_secs_f64() * self.factor.powi(n);
        let seconds = seconds * (1.0 + self.jitter * rng.random::<f64>());
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::FEW_WRITERS
    }
}

impl<K: Cacheable + Serialize + Clone> Api<K> {
    /// Changes an object, and sends the difference as a JSON merge patch with the resourceVersion
    /// that was read. After a conflict it reads the object from the server and tries again
    /// ([`Retry::FEW_WRITERS`]). Returns the server's object. Writes nothing if `change` changes
    /// nothing.
    ///
    /// The first try starts from the cache, or from the server if the cache does not have the
    /// object, or not yet this client's last write of it. `change` is called once per try.
    ///
    /// What was not read stays as it is on the server: fields that the cache
    /// [prunes](crate::CacheOptions::prune), and those that `K` does not have. But a list that
    /// differs is sent whole, as in any JSON merge patch. The server checks the verb `patch`.
    ///
    /// # Errors
    ///
    /// The last conflict, or any other failure; the server's 404 if there is no such object.
    pub async fn update_with_retry(
        &self,
        key: &Request,
        change: impl FnMut(&mut K),
    ) -> Result<K, ClientError> {
        self.update_with_retry_as(key, Retry::FEW_WRITERS, change).await
    }

    /// [`update_with_retry`](Self::update_with_retry) with other tries and delays.
    ///
    /// # Errors
    ///
    /// As [`update_with_retry`](Self::update_with_retry).
    pub async fn update_with_retry_as(
        &self,
        key: &Request,
        retry: Retry,
        change: impl FnMut(&mut K),
    ) -> Result<K, ClientError> {
        let call = self.call("patch", key.to_string());
        self.retry(key, (call, None), retry, change).await
    }

    /// Patches an object, or one of its subresources, until there is no conflict.
    async fn retry(
        &self,
        key: &Request,
        (call, subresource): (Call, Option<&str>),
        retry: Retry,
        mut change: impl FnMut(&mut K),
    ) -> Result<K, ClientError> {
        let pass = self.client.pass().map(|pass| pass.began().reconcile_id.0);
        let mut rng = retry.rng(pass);
        let cached = self.lister_of(&key.namespace).ok();
        let cached = cached.and_then(|lister| lister.get_key(key).ok().flatten());
        let cached = cached.filter(|cached| {
            let meta = cached.meta();
            let [uid, version] =
                [&meta.uid, &meta.resource_version].map(|text| text.as_deref().unwrap_or_default());
            !self.client.own.is_outdated(&self.resource, key, (uid, version))
        });
        let mut read = match cached {
            Some(cached) => {
                self.note_read(key, super::ReadFrom::Cache);
                cached.as_ref().clone()
            }
            None => self.ask_live(key).await?,
        };
        let params = PatchParams::default();
        let mut n = 0;
        loop {
            let before = MergeFrom::new(&read).locked();
            let mut object = read;
            change(&mut object);
            let Some(patch) = before.patch_to(&object, &call)? else { return Ok(object) };
            let patch = Patch::Merge(patch);
            match self.patch_at(call.verb, key, subresource, &patch, &params).await {
                Err(error) if error.is_conflict() && n + 1 < retry.n_tries => {
                    tokio::time::sleep(retry.wait(n, &mut rng)).await;
                    n += 1;
                    read = self.ask_live(key).await?;
                }
                answer => {
                    let (call, body) = answer?;
                    return decode(call, &body);
                }
            }
        }
    }
}

impl<K: Cacheable + Serialize + Clone> Subresource<K, K> {
    /// [`Api::update_with_retry`] for the status.
    ///
    /// # Errors
    ///
    /// As [`Api::update_with_retry`].
    pub async fn update_with_retry(
        &self,
        key: &Request,
        change: impl FnMut(&mut K),
    ) -> Result<K, ClientError> {
        self.update_with_retry_as(key, Retry::FEW_WRITERS, change).await
    }

    /// [`update_with_retry`](Self::update_with_retry) with other tries and delays.
    ///
    /// # Errors
    ///
    /// As [`Api::update_with_retry`].
    pub async fn update_with_retry_as(
        &self,
        key: &Request,
        retry: Retry,
        change: impl FnMut(&mut K),
    ) -> Result<K, ClientError> {
        let call = self.call("patch", key)?;
        self.api.retry(key, (call, Some(&*self.name)), retry, change).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_by_the_factor_with_jitter_from_the_seed() {
        let waits = |retry: Retry| {
            let mut rng = retry.rng(None);
            (0..retry.n_tries - 1).map(|n| retry.wait(n, &mut rng)).collect::<Vec<_>>()
        };
        let within = |waits: &[Duration], bases: &[u64]| {
            waits.len() == bases.len()
                && waits.iter().zip(bases).all(|(wait, base)| {
                    (Duration::from_millis(*base)..Duration::from_micros(base * 1100))
                        .contains(wait)
                })
        };
        assert!(within(&waits(Retry::FEW_WRITERS), &[10, 10, 10, 10]));
        assert!(within(&waits(Retry::MANY_WRITERS), &[10, 50, 250]));
        assert_eq!(waits(Retry::MANY_WRITERS.seed(7)), waits(Retry::MANY_WRITERS.seed(7)));
        assert_ne!(waits(Retry::MANY_WRITERS.seed(7)), waits(Retry::MANY_WRITERS.seed(8)));
    }

    #[test]
    fn without_a_seed_the_jitter_comes_from_the_pass_or_from_entropy() {
        let first = |pass| Retry::MANY_WRITERS.rng(pass).random::<u64>();
        assert_eq!(first(Some(7)), first(Some(7)));
        assert_ne!(first(Some(7)), first(Some(8)));
        assert_ne!(first(None), first(None));
    }
}
