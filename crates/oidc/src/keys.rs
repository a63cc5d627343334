//! The keys of one issuer: discovery, and reading them again.

use crate::config::Issuer;
use crate::fetch::{FetchError, Fetcher};
use crate::issuer::text_of;
use parking_lot::Mutex;
use serde::Deserialize;
use setpoint_jwt::{JWKS_BYTES_MAX, JwkSet};
use setpoint_object::bounded;
use setpoint_object::field::quote;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a failed discovery is left: 10 s, as kube-apiserver.
pub const RETRY: Duration = Duration::from_secs(10);

/// How often the keys are read again without a reason: every hour, so that a key that the issuer
/// has withdrawn ends.
pub const REFRESH_PERIOD: Duration = Duration::from_secs(3600);

/// How often tokens with unknown keys make the keys be read again: once in 10 s, so that nobody can
/// make this server flood the issuer.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// How often they do so at once: five times, so that a rotation is seen when it happens.
pub const REFRESH_BURST: u32 = 5;

/// How long a request waits for the keys: 10 s.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

/// The path of the discovery document below an issuer.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// Maximum size of a discovery document in bytes: 1 MiB.
const DISCOVERY_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of the error of a failed attempt; a longer one is cut. A document's own texts may
/// be in it.
const ERROR_BYTES_MAX: usize = 4 << 10;

/// The keys of an issuer, as requests see them.
#[derive(Debug)]
pub(crate) struct Keys {
    state: watch::Sender<State>,
    wanted: Notify,
    allowance: Mutex<Allowance>,
}

#[derive(Debug, Clone)]
struct State {
    /// `None`: never read.
    keys: Option<Arc<JwkSet>>,
    /// A discovery document has been read.
    is_discovered: bool,
    /// How often reading them has ended, well or not.
    n_ended: u64,
    /// How often it was begun.
    n_begun: u64,
    /// Why the last attempt failed.
    error: Option<String>,
}

/// How often the keys may be read again because of a token.
#[derive(Debug)]
struct Allowance {
    left: u32,
    counted: Option<Instant>,
    /// The number of readings that had begun when the last one was asked for: who comes before the
    /// next one begins waits for the same.
    asked: Option<u64>,
}

impl Allowance {
    fn new() -> Self {
        Self { left: REFRESH_BURST, counted: None, asked: None }
    }

    fn join_or_take(&mut self, begun: u64, now: Instant) -> bool {
        let is_allowed = begun == 0 || self.asked == Some(begun) || self.take(now);
        if is_allowed {
            self.asked = Some(begun);
        }
        is_allowed
    }

    fn take(&mut self, now: Instant) -> bool {
        let counted = *self.counted.get_or_insert(now);
        let earned = now.duration_since(counted).as_secs() / REFRESH_INTERVAL.as_secs();
        if earned > 0 {
            self.left = self.left.saturating_add(earned as u32).min(REFRESH_BURST);
            self.counted = Some(now);
        }
        let is_allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_allowed
    }
}

impl Keys {
    pub(crate) fn new() -> Self {
        let state = State { keys: None, is_discovered: false, n_ended: 0, n_begun: 0, error: None };
        let allowance = Mutex::new(Allowance::new());
        Self { state: watch::Sender::new(state), wanted: Notify::new(), allowance }
    }

    /// The present keys; `None` until they have been read for the first time.
    pub(crate) fn current(&self) -> Option<Arc<JwkSet>> {
        self.state.borrow().keys.clone()
    }

    /// Becomes `Ok` once the issuer is known, or ends with the last error at `deadline`.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub(crate) async fn discovered(&self, deadline: Instant) -> Result<(), String> {
        let mut state = self.state.subscribe();
        let found = tokio::time::timeout_at(deadline, state.wait_for(|s| s.is_discovered)).await;
        match found {
            Ok(_) => Ok(()),
            Err(_) => {
                let why = self.state.borrow().error.clone();
                Err(why.unwrap_or_else(|| "no answer yet".to_owned()))
            }
        }
    }

    /// Waits for the first answer to the discovery, at most [`WAIT_MAX`].
    ///
    /// # Errors
    ///
    /// Why the issuer is not known.
    pub(crate) async fn discovered_soon(&self) -> Result<(), String> {
        let mut state = self.state.subscribe();
        let read = state.wait_for(|state| state.is_discovered || state.error.is_some());
        let Ok(Ok(state)) = tokio::time::timeout(WAIT_MAX, read).await else {
            return Err("no answer in time".to_owned());
        };
        match state.is_discovered {
            true => Ok(()),
            false => Err(state.error.clone().unwrap_or_default()),
        }
    }

    /// The keys of an issuer that is known. If there are none, reads them and waits for them, as
    /// [`Keys::again`]. `None`: it is not known, or they were read too often already.
    ///
    /// # Errors
    ///
    /// Why they cannot be read.
    pub(crate) async fn of_known_issuer(&self) -> Option<Result<Arc<JwkSet>, String>> {
        if let Some(keys) = self.current() {
            return Some(Ok(keys));
        }
        if !self.state.borrow().is_discovered {
            return None;
        }
        self.again().await
    }

    /// Reads the keys again and waits for them, at most [`WAIT_MAX`]. `None`: they were read too
    /// often already.
    ///
    /// # Errors
    ///
    /// Why they cannot be read.
    pub(crate) async fn again(&self) -> Option<Result<Arc<JwkSet>, String>> {
        let mut state = self.state.subscribe();
        // One that has begun before may have got older keys.
        let begun = self.state.borrow().n_begun;
        if !self.allowance.lock().join_or_take(begun, Instant::now()) {
            return None;
        }
        self.wanted.notify_one();
        let read = state.wait_for(|state| state.n_ended > begun);
        let Ok(Ok(state)) = tokio::time::timeout(WAIT_MAX, read).await else {
            return Some(Err("no answer in time".to_owned()));
        };
        match (&state.error, &state.keys) {
            (None, Some(keys)) => Some(Ok(keys.clone())),
            (error, _) => Some(Err(error.clone().unwrap_or_default())),
        }
    }

    /// Discovers the issuer, reads its keys when somebody wants them, and reads them again when it
    /// is time or somebody wants it, until `stop`. `observe` is called with the SHA-256 of each
    /// document of keys, or without one if an attempt to read it has failed.
    pub(crate) async fn follow(
        &self,
        issuer: &Issuer,
        fetcher: &Fetcher,
        observe: impl Fn(Option<&[u8; 32]>),
        stop: &CancellationToken,
    ) {
        let work = async {
            let mut url = Some(self.discover(issuer, fetcher).await);
            self.wanted.notified().await;
            loop {
                self.state.send_modify(|state| state.n_begun += 1);
                let read = self.read(issuer, fetcher, &mut url, &observe).await;
                // Each token that waits for the keys gets the error.
                let read = read.map_err(|error| bounded::text(error, ERROR_BYTES_MAX));
                if let Err(error) = &read {
                    let issuer = &issuer.url;
                    tracing::error!(issuer, error, "read the keys of an issuer");
                }
                let has_failed = read.is_err();
                self.state.send_modify(|state| {
                    state.n_ended = state.n_begun;
                    match read {
                        Ok(keys) => (state.keys, state.error) = (Some(Arc::new(keys)), None),
                        // The keys that are known stay.
                        Err(error) => state.error = Some(error),
                    }
                });
                let pause = if has_failed { RETRY } else { REFRESH_PERIOD };
                tokio::select! {
                    // Cancel safe: both only wait.
                    () = self.wanted.notified() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            // Cancel safe: a document that is not read completely is dropped.
            () = work => {}
        }
    }

    /// Tries until the issuer is known. Returns the URL of its keys.
    async fn discover(&self, issuer: &Issuer, fetcher: &Fetcher) -> String {
        loop {
            let found = discover(issuer, fetcher).await;
            // Each token that waits for the keys gets the error.
            match found.map_err(|error| bounded::text(error, ERROR_BYTES_MAX)) {
                Ok(url) => {
                    self.state
                        .send_modify(|state| (state.is_discovered, state.error) = (true, None));
                    return url;
                }
                Err(error) => {
                    let issuer = &issuer.url;
                    tracing::error!(issuer, error, "discover an issuer");
                    self.state.send_modify(|state| state.error = Some(error));
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Reads the keys. If that fails before there are any, the next attempt begins with the
    /// discovery of their URL.
    async fn read(
        &self,
        issuer: &Issuer,
        fetcher: &Fetcher,
        url: &mut Option<String>,
        observe: &impl Fn(Option<&[u8; 32]>),
    ) -> Result<JwkSet, String> {
        let has_none = self.state.borrow().keys.is_none();
        let known = if has_none { url.take() } else { url.clone() };
        let target = match known {
            Some(known) => known,
            None => discover(issuer, fetcher).await?,
        };
        let read = read_keys(fetcher, &target).await;
        observe(read.as_ref().ok().map(|(_, hash)| hash));
        let (keys, _) = read?;
        *url = Some(target);
        Ok(keys)
    }
}

/// Reads a document of keys. Returns its SHA-256, too.
async fn read_keys(fetcher: &Fetcher, url: &str) -> Result<(JwkSet, [u8; 32]), String> {
    let document = fetcher
        .get(url, JWKS_BYTES_MAX)
        .await
        .map_err(|error| format!("oidc: get keys failed {}", text_of(&error)))?;
    // Up to a mebibyte of keys, each of which is checked.
    let parse = move || (JwkSet::parse(&document), Sha256::digest(&document).into());
    let (keys, hash) = tokio::task::spawn_blocking(parse)
        .await
        .map_err(|error| format!("oidc: failed to decode keys: {error}"))?;
    let keys = keys.map_err(|error| format!("oidc: failed to decode keys: {}", text_of(&error)))?;
    match keys.is_empty() {
        false => Ok((keys, hash)),
        true => Err(format!("oidc: no usable keys at {url}")),
    }
}

/// The URL of the keys.
async fn discover(issuer: &Issuer, fetcher: &Fetcher) -> Result<String, String> {
    let url = match issuer.discovery_url.is_empty() {
        true => {
            format!("{}{WELL_KNOWN}", issuer.url.strip_suffix('/').unwrap_or(&issuer.url))
        }
        false => issuer.discovery_url.clone(),
    };
    let document = fetcher
        .get(&url, DISCOVERY_BYTES_MAX)
        .await
        .map_err(|error: FetchError| format!("Get {}: {}", quote(&url), text_of(&error)))?;
    let failed =
        |error: String| format!("oidc: failed to decode provider discovery object: {error}");
    let parse = move || serde_json::from_slice::<Discovery>(&document);
    let found =
        tokio::task::spawn_blocking(parse).await.map_err(|error| failed(error.to_string()))?;
    let Discovery { issuer: found, jwks_uri } = found.map_err(|error| failed(error.to_string()))?;
    let (found, jwks_uri) = (found.unwrap_or_default(), jwks_uri.unwrap_or_default());
    if found != issuer.url {
        return Err(format!(
            "oidc: issuer did not match the issuer returned by provider, expected {} got {}",
            quote(&issuer.url),
            quote(&found)
        ));
    }
    match jwks_uri.is_empty() {
        false => Ok(jwks_uri),
        true => Err("provider did not return JWKS URL".to_owned()),
    }
}

/// The members of a discovery document that count.
#[derive(Deserialize)]
struct Discovery {
    issuer: Option<String>,
    jwks_uri: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tokens_cannot_make_the_keys_be_read_often() {
        let mut allowance = Allowance::new();
        let start = Instant::now();
        let mut taken = |seconds| allowance.take(start + Duration::from_secs(seconds));
        assert_eq!([0, 0, 1, 1, 2, 2].map(&mut taken), [true, true, true, true, true, false]);
        assert_eq!(
            [9, 10, 11, 19, 20, 20].map(&mut taken),
            [false, true, false, false, true, false]
        );
        assert_eq!([3600; 7].map(&mut taken), [true, true, true, true, true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_keys_the_error_is_reported() {
        let keys = Keys::new();
        let soon = Instant::now() + Duration::from_secs(1);
        assert_eq!(keys.discovered(soon).await.unwrap_err(), "no answer yet");
        assert_eq!(keys.again().await.unwrap().unwrap_err(), "no answer in time");
        assert_eq!(keys.discovered_soon().await.unwrap_err(), "no answer in time");
        assert!(keys.of_known_issuer().await.is_none());
    }
}
