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
//! - **Keys.** Each issuer has one task. It reads the discovery document, and tries again every
//!   [`RETRY`] until it has it; tokens are refused until then. As in kube-apiserver, the first
//!   token makes it read the keys. They are read again every [`REFRESH_PERIOD`], and when a token
//!   names an unknown key or a signature does not fit: at once for the first [`REFRESH_BURST`]
//!   times, then once in [`REFRESH_INTERVAL`], however many such tokens come. If the issuer does
//!   not answer, the keys that are known stay.
//! - **Verification** follows kube-apiserver: the algorithm must be allowed, a key of the issuer
//!   must have signed, `iss` must be the issuer, `aud` one of the audiences, `exp` in the future,
//!   `nbf` at most a minute in the future.
//! - **Distributed claims.** The groups may be a claim that the token does not have, but for which
//!   it names an endpoint (`_claim_names`, `_claim_sources`). The endpoint is asked with the
//!   `access_token` of the token. It answers with another token, which is verified like the first,
//!   with the keys of the issuer that it names: at most [`CLAIMS_BYTES_MAX`] bytes and
//!   [`CLAIM_VALUES_MAX`] groups, over HTTPS, within [`CLAIM_MAX`], [`CLAIMS_AT_ONCE`] tokens of an
//!   issuer at once. [`OTHER_ISSUERS_MAX`] other issuers are followed per issuer. Aggregated claims
//!   (`JWT`) are not read, as in kube-apiserver.
//! - **A request waits** for the keys at most [`WAIT_MAX`]. It never reads them itself, so that its
//!   end does not end the reading.
//! - **Threads.** Signatures that take long (ES512, many keys) and expressions that cost more than
//!   about a millisecond run on other threads, [`SLOW_AT_ONCE`] at once. A result is remembered for
//!   [`REMEMBERED`].
//! - **Another configuration** replaces the present one as a whole, once all of its issuers are
//!   known. Until then, and if it is invalid, the present one stays.
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
mod sources;

pub use authenticator::{Observer, Oidc, OidcOptions, OidcWorker, Outcome, SLOW_AT_ONCE, User};
pub use config::{
    Anonymous, AnonymousCondition, AuthenticationConfig, ClaimMappings, ClaimOrExpression,
    ClaimValidationRule, ConfigError, ExtraMapping, FILE_BYTES_MAX, Issuer, JWT_MAX,
    JwtAuthenticator, PrefixedClaimOrExpression, UserValidationRule,
};
pub use fetch::{FETCH_MAX, FetchError};
pub use issuer::{
    CLAIM_MAX, CLAIM_VALUES_MAX, CLAIMS_AT_ONCE, CLAIMS_BYTES_MAX, OTHER_ISSUERS_MAX,
};
pub use keys::{REFRESH_BURST, REFRESH_INTERVAL, REFRESH_PERIOD, RETRY, WAIT_MAX};
pub use reload::{RELOAD_PERIOD, ReloadReport, UPDATE_MAX};
pub use remembered::REMEMBERED;
pub use setpoint_jwt::Algorithm;
