//! A quota as charges see it, decoded once per version.
use crate::stored::tree;
use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, bounded};
use setpoint_quota::pod::quantities;
use setpoint_quota::{Term, Usage};
use setpoint_store::Revision;
use std::sync::Arc;

/// Maximum number of quotas that are remembered.
const KNOWN_MAX: usize = 2_048;
/// Maximum encoded size of a quota that is remembered. Its amounts take some four times as much:
/// with this, at most 32 MiB in sum.
const BYTES_MAX: usize = 4096;

/// A quota at a revision.
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) key: Bytes,
    pub(super) modified: Revision,
    stored: Bytes,
    terms: Arc<Terms>,
    /// The usage after a charge.
    charged: Option<Usage>,
}

/// What charges read of a stored quota.
#[derive(Debug)]
struct Terms {
    name: String,
    hard: Usage,
    used: Usage,
    scopes: Vec<Term>,
}

impl Quota {
    pub(super) fn name(&self) -> &str {
        &self.terms.name
    }
    pub(super) fn hard(&self) -> &Usage {
        &self.terms.hard
    }
    pub(super) fn scopes(&self) -> &[Term] {
        &self.terms.scopes
    }
    pub(super) fn used(&self) -> &Usage {
        self.charged.as_ref().unwrap_or(&self.terms.used)
    }
    pub(super) fn charge(&mut self, used: Usage) {
        self.charged = Some(used);
    }
    /// The object with its new usage.
    pub(super) fn object(&self) -> Result<Value, ApiError> {
        let mut object = tree(&self.stored)?;
        let used = self.used().iter().map(|(name, amount)| (name.clone(), json!(amount.as_str())));
        object["status"]["used"] = Value::Object(used.collect());
        Ok(object)
    }
}

/// Quotas that were charged last, by their keys: a namespace may have many, and each create asks
/// all of them.
#[derive(Debug)]
pub(super) struct Known(Mutex<LruCache<Bytes, (Revision, Arc<Terms>)>>);

impl Default for Known {
    fn default() -> Self {
        Self(Mutex::new(bounded::lru(KNOWN_MAX)))
    }
}

impl Known {
    /// The quota of a key, its stored bytes and its revision.
    pub(super) fn quota(
        &self,
        (key, stored, modified): (Bytes, Bytes, Revision),
    ) -> Result<Quota, ApiError> {
        let known = self.0.lock().get(&key).filter(|known| known.0 == modified).cloned();
        let terms = match known {
            Some((_, terms)) => terms,
            None => {
                let terms = Arc::new(Terms::of(&tree(&stored)?));
                if stored.len() <= BYTES_MAX {
                    // The former one is dropped without the lock.
                    let former = self.0.lock().push(key.clone(), (modified, terms.clone()));
                    drop(former);
                }
                terms
            }
        };
        Ok(Quota { key, modified, stored, terms, charged: None })
    }
}

impl Terms {
    fn of(quota: &Value) -> Self {
        Self {
            name: quota.name().to_owned(),
            hard: quantities(&quota["status"]["hard"]),
            used: quantities(&quota["status"]["used"]),
            scopes: Term::all(quota),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(used: &str) -> Bytes {
        let quota = json!({
            "metadata": {"name": "q"}, "spec": {"scopes": ["Terminating"]},
            "status": {"hard": {"pods": "2"}, "used": {"pods": used}},
        });
        quota.to_string().into()
    }

    #[test]
    fn a_quota_is_decoded_once_per_version() {
        let known = Known::default();
        let read = |used, modified| {
            let key = Bytes::from_static(b"resourcequotas/default/q");
            known.quota((key, stored(used), Revision(modified))).unwrap()
        };
        let (mut first, second) = (read("0", 1), read("0", 1));
        assert!(Arc::ptr_eq(&first.terms, &second.terms));
        assert_eq!((first.name(), first.scopes().len()), ("q", 1));

        // A charge is that of one write: the others do not see it before it is stored.
        first.charge(quantities(&json!({"pods": "1"})));
        let (object, other) = (first.object().unwrap(), read("0", 1));
        assert_eq!(object["status"]["used"], json!({"pods": "1"}));
        assert_eq!(object["status"]["hard"], json!({"pods": "2"}));
        assert_eq!(other.object().unwrap()["status"]["used"], json!({"pods": "0"}));
        assert_eq!(read("1", 2).used()["pods"].as_str(), "1");
        // An older state, as of a store that is ahead of the cache.
        assert_eq!(read("0", 1).used()["pods"].as_str(), "0");
    }

    #[test]
    fn long_quotas_are_not_remembered_and_the_number_is_limited() {
        let known = Known::default();
        let long = json!({"metadata": {"name": "x".repeat(BYTES_MAX)}}).to_string();
        known.quota((Bytes::from_static(b"long"), long.into(), Revision(1))).unwrap();
        assert_eq!(known.0.lock().len(), 0);
        for n in 0..KNOWN_MAX + 10 {
            known.quota((n.to_string().into(), stored("0"), Revision(1))).unwrap();
        }
        assert_eq!(known.0.lock().len(), KNOWN_MAX);
    }
}
