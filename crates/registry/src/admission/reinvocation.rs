//! Reinvocation: mutating webhooks and policies that see the changes of later ones.
use serde_json::Value;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Which mutating hooks, or mutating policies, of a request are called a second time.
#[derive(Debug, Default)]
pub(crate) struct Reinvocation {
    /// It is the second round.
    is_second: bool,
    /// Hooks with the policy `IfNeeded` that were called, and not required since.
    called: BTreeSet<String>,
    /// Hooks whose object has changed since their call.
    required: BTreeSet<String>,
    /// The object after the last round, as a hash.
    last: Option<u64>,
    /// A hook has changed the object.
    has_changed: bool,
}
impl Reinvocation {
    /// Whether a hook of the first round has changed the object, or something has changed it since
    /// that round.
    pub(super) fn is_due(&self, object: &Value) -> bool {
        self.last.is_some_and(|last| self.has_changed || fingerprint(object) != last)
    }
    /// Whether a hook has changed the object.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed
    }
    /// Starts the second round.
    pub(super) fn begin_second(&mut self) {
        self.is_second = true;
    }
    /// The number of the round.
    pub(super) fn round(&self) -> u8 {
        u8::from(self.is_second)
    }
    /// A round starts with this object.
    pub(super) fn begin(&mut self, object: &Value) {
        if self.is_second && self.last.is_some_and(|last| fingerprint(object) != last) {
            self.require();
        }
    }
    /// Whether this round calls a hook.
    pub(super) fn calls(&self, uid: &str) -> bool {
        !self.is_second || self.required.contains(uid)
    }
    /// A hook with the policy `IfNeeded` was called.
    pub(super) fn has_called(&mut self, uid: String) {
        self.called.insert(uid);
    }
    /// A hook has changed the object.
    pub(super) fn has_mutated(&mut self) {
        self.has_changed = true;
        self.require();
    }
    /// The object has changed: hooks that were called before see it again.
    fn require(&mut self) {
        self.required.append(&mut self.called);
    }
    /// A round ends with this object.
    pub(super) fn end(&mut self, object: &Value) {
        if self.has_changed || !self.called.is_empty() {
            self.last = Some(fingerprint(object));
        }
    }
}

/// A hash that distinguishes states of an object.
pub(super) fn fingerprint(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish()
}
