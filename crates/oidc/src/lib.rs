//! Tokens of OpenID Connect issuers: who is the user of a token that somebody else has signed?
//!
//! # Theory
//!
//! ```text
//! file or flags ─ AuthenticationConfig ─▶ one issuer per entry ─┬─ task: discovery, then keys
//!                  checked, compiled                             └─ authenticate(token)
//!                                                                    issuer ─ signature ─ times, audience ─ claims ─▶ User
//! ```
//!
//! - **Configuration** is Kubernetes' `AuthenticationConfiguration` (`apiserver.config.k8s.io/v1`
//!   and `v1beta1`), with the errors of kube-apiserver. Its expressions are compiled when it is
//!   read.
//! - **Keys.** Each issuer has one task. It reads the discovery document and then the keys, and
//!   tries again every [`RETRY`] until it has them; tokens are refused until then. The keys are
//!   read again every [`REFRESH_PERIOD`], and when a token names an unknown key or a signature does
//!   not fit: at once for the first [`REFRESH_BURST`] times, then once in [`REFRESH_INTERVAL`],
//!   however many such tokens come. If the issuer does not answer, the keys that are known stay.
//! - **Verification** follows kube-apiserver: the algorithm must be allowed, a key of the issuer
//!   must have signed, `iss` must be the issuer, `aud` one of the audiences, `exp` in the future,
//!   `nbf` at most a minute in the future.
//! - **A request waits** for the keys at most [`WAIT_MAX`]. It never reads them itself, so that its
//!   end does not end the reading.
//! - **Threads.** Signatures that take long (ES512, many keys) and expressions that cost more than
//!   about a millisecond run on other threads, [`SLOW_AT_ONCE`] at once. A result is remembered for
//!   [`REMEMBERED`].
//! - **Another configuration** replaces the present one as a whole, once all of its issuers have
//!   keys. Until then, and if it is invalid, the present one stays.
//!
//! Left out: distributed claims (`_claim_names`), egress selectors.
//!
//! This crate knows nothing of requests, listeners or the API server.

mod authenticator;
mod claims;
mod config;
mod fetch;
mod issuer;
mod keys;
mod mapping;
mod reload;
mod remembered;

pub use authenticator::{Oidc, OidcOptions, OidcWorker, Outcome, SLOW_AT_ONCE, User};
pub use config::{
    Anonymous, AnonymousCondition, AuthenticationConfig, ClaimMappings, ClaimOrExpression,
    ClaimValidationRule, ConfigError, ExtraMapping, FILE_BYTES_MAX, Issuer, JWT_MAX,
    JwtAuthenticator, PrefixedClaimOrExpression, UserValidationRule, field_path,
};
pub use fetch::{FETCH_MAX, FetchError};
pub use keys::{REFRESH_BURST, REFRESH_INTERVAL, REFRESH_PERIOD, RETRY, WAIT_MAX};
pub use reload::{RELOAD_PERIOD, ReloadReport, UPDATE_MAX};
pub use remembered::REMEMBERED;
pub use setpoint_jwt::Algorithm;
