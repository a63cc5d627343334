//! EventRateLimit: limits how many Events are written (spec: admission §2).
//!
//! # Theory
//!
//! Each limit has token buckets: one, or one per namespace, user, or source and object. A write
//! takes a token from a bucket of every limit. Buckets beyond the limit's cache size are dropped,
//! the longest unused first.
use super::{Admission, Operation, Review};
use crate::kind::core::event::LimitType;
use crate::kind::text;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::bounded::{self, LruCache};
use setpoint_object::error::aggregate;
use setpoint_object::field::{self, Error, Path};
use setpoint_object::{ApiError, Reason};
use tokio::time::Instant;

/// Buckets per limit if the configuration has no `cacheSize`: as in kube-apiserver.
const BUCKETS: usize = 4096;
/// Maximum number of limits.
const LIMITS_MAX: usize = 64;
/// Maximum of `cacheSize`: a million buckets take about 100 MB.
const BUCKETS_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct EventRateLimit {
    limits: Vec<Limit>,
}

#[derive(Debug)]
struct Limit {
    of: LimitType,
    /// Tokens per second.
    qps: f64,
    /// Tokens of a full bucket.
    burst: f64,
    buckets: Mutex<LruCache<String, Bucket>>,
}
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl EventRateLimit {
    pub(super) fn new(config: &Value) -> Result<Self, String> {
        let path = Path::new("limits");
        let mut errors = Vec::new();
        let given = config["limits"].as_array().map(Vec::as_slice).unwrap_or_default();
        if given.is_empty() {
            errors.push(Error::invalid(path.clone(), &config["limits"], "must not be empty"));
        }
        if given.len() > LIMITS_MAX {
            return Err(Error::too_many(path, given.len(), LIMITS_MAX).to_string());
        }
        let mut limits = Vec::new();
        for (i, limit) in given.iter().enumerate() {
            let (path, n_before) = (path.index(i), errors.len());
            let name = text(limit, "type");
            let of = LimitType::of(name);
            if of.is_none() {
                let names = LimitType::ALL.map(LimitType::as_str);
                errors.push(Error::not_supported(path.child("type"), &name.into(), &names));
            }
            let number = |member: &str| limit[member].as_i64().unwrap_or(0);
            let (burst, qps, size) = (number("burst"), number("qps"), number("cacheSize"));
            for (member, n) in [("burst", burst), ("qps", qps)] {
                if n <= 0 || n > i64::from(i32::MAX) {
                    errors.push(Error::invalid(path.child(member), &n.into(), "must be positive"));
                }
            }
            let at = path.child("cacheSize");
            match usize::try_from(size) {
                // One bucket needs no cache.
                _ if of == Some(LimitType::Server) => {}
                Err(_) => errors.push(Error::invalid(at, &size.into(), "must not be negative")),
                Ok(n) if n > BUCKETS_MAX => {
                    let detail = format!("must be at most {BUCKETS_MAX}");
                    errors.push(Error::invalid(at, &size.into(), detail));
                }
                Ok(_) => {}
            }
            let n_buckets = match usize::try_from(size) {
                Ok(n @ 1..=BUCKETS_MAX) => n,
                _ => BUCKETS,
            };
            if let Some(of) = of.filter(|_| errors.len() == n_before) {
                let buckets = Mutex::new(bounded::lru(n_buckets));
                limits.push(Limit { of, qps: qps as f64, burst: burst as f64, buckets });
            }
        }
        if errors.is_empty() { Ok(Self { limits }) } else { Err(field::aggregate(&errors)) }
    }
}

impl Admission for EventRateLimit {
    fn name(&self) -> &str {
        "EventRateLimit"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        matches!(review.operation, Operation::Create | Operation::Update)
            && review.is("", "events")
            && !review.dry_run
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        event: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let now = Instant::now();
        let mut reached: Vec<String> = Vec::new();
        for limit in &self.limits {
            let key = match limit.of {
                LimitType::Server => String::new(),
                LimitType::Namespace => review.namespace.to_owned(),
                LimitType::User => review.attributes.identity.user.to_string(),
                LimitType::SourceAndObject => LimitType::source_and_object(event),
            };
            if !limit.take(&key, now) {
                let of = limit.of.as_str();
                reached.push(format!("limit reached on type {of} for key {key}"));
            }
        }
        let refused = |why: &str| {
            // As the reference: without the seconds after which the client may try again.
            let message = format!("Too many requests: {why}");
            Err(ApiError::new(429, Reason::TooManyRequests, message))
        };
        let result = match &reached[..] {
            [] => Ok(()),
            reached => refused(&aggregate(reached)),
        };
        futures::future::ready(result).boxed()
    }
}

impl Limit {
    /// Takes a token from the bucket of a key.
    fn take(&self, key: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock();
        let new = || Bucket { tokens: self.burst, at: now };
        let bucket = buckets.get_or_insert_mut(key.to_owned(), new);
        let elapsed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + elapsed * self.qps).min(self.burst);
        bucket.at = now;
        let is_taken = bucket.tokens >= 1.0;
        if is_taken {
            bucket.tokens -= 1.0;
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn plugin(limit: Value) -> EventRateLimit {
        EventRateLimit::new(&json!({"limits": [limit]})).unwrap()
    }

    #[test]
    fn buckets_are_refilled_and_bounded() {
        let plugin = plugin(json!({"type": "User", "qps": 1, "burst": 2, "cacheSize": 2}));
        let (limit, now) = (&plugin.limits[0], Instant::now());
        assert!(limit.take("a", now) && limit.take("a", now) && !limit.take("a", now));
        assert!(limit.take("a", now + Duration::from_secs(1)));
        assert!(limit.take("b", now) && limit.take("c", now));
        assert_eq!(limit.buckets.lock().len(), 2);
        // The bucket of `a` was dropped, so it is full again.
        assert!(limit.take("a", now) && limit.take("a", now) && !limit.take("a", now));
    }

    #[test]
    fn configurations_are_checked_in_the_words_of_the_reference() {
        let check = |config: Value| EventRateLimit::new(&config).unwrap_err();
        let limits = |limits: Value| check(json!({"limits": limits}));
        assert_eq!(limits(json!([])), "limits: Invalid value: []: must not be empty");
        assert_eq!(check(json!({})), "limits: Invalid value: null: must not be empty");
        assert_eq!(check(Value::Null), "limits: Invalid value: null: must not be empty");
        let supported = r#"supported values: "Server", "Namespace", "User", "SourceAndObject""#;
        assert_eq!(
            limits(json!([{"type": "X", "qps": 1, "burst": 1}, {"type": "User", "cacheSize": -1}])),
            format!(
                r#"[limits[0].type: Unsupported value: "X": {supported}, limits[1].burst: Invalid value: 0: must be positive, limits[1].qps: Invalid value: 0: must be positive, limits[1].cacheSize: Invalid value: -1: must not be negative]"#
            )
        );
        // One bucket for all needs no cache.
        let server = json!([{"type": "Server", "qps": 1, "burst": 1, "cacheSize": -1}]);
        assert!(EventRateLimit::new(&json!({"limits": server})).is_ok());
        let zero = json!([{"type": "Namespace", "qps": 1, "burst": 1, "cacheSize": 0}]);
        assert!(EventRateLimit::new(&json!({"limits": zero})).is_ok());
    }
}
