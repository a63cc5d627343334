//! EventRateLimit: limits how many Events are written (spec: admission §2).
//!
//! # Theory
//!
//! Each limit has token buckets: one, or one per namespace, user, or source and object. A write
//! takes a token from a bucket of every limit. Buckets beyond the limit's cache size are dropped,
//! the longest unused first.
use super::{Admission, Operation, Review};
use crate::kind::core::event::LimitType;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::bounded::{self, LruCache};
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
        let limits = config["limits"].as_array().filter(|limits| !limits.is_empty());
        let limits = limits.ok_or("limits: Invalid value: []: must not be empty")?;
        if limits.len() > LIMITS_MAX {
            return Err(format!("limits: Too many: must have at most {LIMITS_MAX} items"));
        }
        let limit = |(i, limit): (usize, &Value)| {
            let known = limit["type"].as_str().and_then(LimitType::of);
            let of =
                known.ok_or(format!("limits[{i}].type: Unsupported value: {}", limit["type"]))?;
            let positive = |member: &str| {
                let number =
                    limit[member].as_u64().filter(|n| (1..=u64::from(u32::MAX)).contains(n));
                number.ok_or(format!("limits[{i}].{member}: must be positive"))
            };
            let n_max = match &limit["cacheSize"] {
                Value::Null => BUCKETS,
                size => size
                    .as_u64()
                    .and_then(|size| usize::try_from(size).ok())
                    .filter(|size| *size <= BUCKETS_MAX)
                    .ok_or(format!("limits[{i}].cacheSize: must be at most {BUCKETS_MAX}"))?
                    .max(1),
            };
            let (qps, burst) = (positive("qps")? as f64, positive("burst")? as f64);
            Ok(Limit { of, qps, burst, buckets: Mutex::new(bounded::lru(n_max)) })
        };
        let limits: Result<_, String> = limits.iter().enumerate().map(limit).collect();
        Ok(Self { limits: limits? })
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
        let result = match &reached[..] {
            [] => Ok(()),
            [one] => Err(ApiError::too_many_requests(one, 1)),
            several => Err(ApiError::too_many_requests(format!("[{}]", several.join(", ")), 1)),
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
    fn configurations_are_checked() {
        let check = |limits: Value| EventRateLimit::new(&json!({"limits": limits})).unwrap_err();
        assert_eq!(check(json!([])), "limits: Invalid value: []: must not be empty");
        let unknown = json!([{"type": "X", "qps": 1, "burst": 1}]);
        assert_eq!(check(unknown), r#"limits[0].type: Unsupported value: "X""#);
        let zero = json!([{"type": "Server", "qps": 0, "burst": 1}]);
        assert_eq!(check(zero), "limits[0].qps: must be positive");
    }
}
