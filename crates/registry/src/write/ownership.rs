//! Field ownership after a write (spec: patch §5).
use super::change::Owned;
use super::{Write, metadata};
use crate::admission::{Operation, Options};
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::GroupVersionKind;
use setpoint_object::field::is_printable;
use setpoint_schema::apply::{self, Manager, Owners, Typing, Versions};
use setpoint_schema::builtin;
use std::collections::BTreeSet;

/// Maximum length of a default manager name, in bytes: as for `fieldManager`.
const MANAGER_BYTES_MAX: usize = 128;

impl Write<'_> {
    /// The manager's name: `fieldManager`, or else the user agent up to its first `/`.
    pub(super) fn manager(&self) -> String {
        if !self.options.field_manager.is_empty() {
            return self.options.field_manager.clone();
        }
        let agent = self.attributes.user_agent.split('/').next().unwrap_or_default();
        let mut name: String = agent.chars().filter(|c| is_printable(*c)).collect();
        let mut end = name.len().min(MANAGER_BYTES_MAX);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        if name.is_empty() { "unknown".to_owned() } else { name }
    }
    /// Members that this endpoint resets, so that they are not owned through it.
    fn reset(&self) -> BTreeSet<&'static str> {
        match self.target.subresource.as_ref() {
            Some(Subresource::Status) => {
                let rule = self.resource.status;
                rule.into_iter().flat_map(|rule| rule.resets.iter().copied()).collect()
            }
            None => {
                let rule = self.reset_status().filter(|rule| !rule.owned_through_main);
                let status = rule.map(|_| "status");
                self.resource.kind.resets.iter().copied().chain(status).collect()
            }
            Some(_) => {
                let part = self.resource.kind.part(self.target.subresource_name());
                part.into_iter().flat_map(|part| part.resets.iter().copied()).collect()
            }
        }
    }
    /// Calls `f` with the typing and manager of this request.
    pub(super) fn with_manager<T>(&self, f: impl FnOnce(&Typing<'_>, &Manager<'_>) -> T) -> T {
        let (name, reset) = (self.manager(), self.reset());
        let api_version = self.resource.group_version().to_string();
        let (versions, others) = (self.resource.all_versions(), self.other_versions());
        f(
            &Typing {
                schema: &self.resource.schema,
                kind: &self.resource.gvk.kind,
                reset: &reset,
                custom: !self.resource.has_go_type(),
                versions: &versions,
                others: others.as_ref().map(|others| others as &dyn Versions),
            },
            &Manager {
                name: &name,
                api_version: &api_version,
                subresource: self.target.subresource_name(),
                now: self.now,
            },
        )
    }
    /// Sets the managedFields of a new object of another built-in kind, whose owner references are
    /// each there once.
    pub(super) fn own_as(&self, gvk: &GroupVersionKind, new: &mut Value) {
        let Some(schema) = builtin::type_schema(&gvk.group, &gvk.version, &gvk.kind) else {
            return;
        };
        metadata::deduplicate_owners(self.attributes, new);
        let (name, reset) = (self.manager(), BTreeSet::new());
        let typing = Typing {
            schema: &schema,
            kind: &gvk.kind,
            reset: &reset,
            custom: false,
            versions: &[],
            others: None,
        };
        let manager = Manager {
            name: &name,
            api_version: &gvk.group_version().to_string(),
            subresource: self.target.subresource_name(),
            now: self.now,
        };
        apply::update(&typing, None, new, &manager);
    }
    /// Updates managedFields before only a part of the object is taken (`ephemeralcontainers`,
    /// `resize`): as there, what was sent is owned, even if it is dropped then.
    pub(super) fn own_part(&self, object: &mut Value, stored: &Value) -> Owned {
        let part = self.resource.kind.part(self.target.subresource_name());
        if part.is_none_or(|part| part.takes_metadata) {
            return Owned::No;
        }
        self.own(Some(stored), object);
        Owned::Within
    }
    /// Updates managedFields with the changes between `old` and `new`.
    pub(super) fn own(&self, old: Option<&Value>, new: &mut Value) {
        self.with_manager(|typing, manager| apply::update(typing, old, new, manager));
    }
    /// The same with managedFields beside the objects. Returns those of `new`.
    pub(super) fn own_apart(
        &self,
        old: Option<(&Value, Option<&Owners<'_>>)>,
        new: &Value,
    ) -> Option<Owners<'static>> {
        self.with_manager(|typing, manager| apply::update_apart(typing, old, new, manager))
    }
    /// Whether managedFields may be beside the objects of a write: nobody looks at them between
    /// decoding and encoding.
    pub(super) fn keeps_owners_apart(&self, operation: Operation) -> bool {
        matches!(self.target.subresource, None | Some(Subresource::Status))
            && self.is_alone(operation)
    }
    /// Whether only the server sees the objects of a write: no webhook converts them, and no
    /// plugin, policy or webhook may match.
    pub(super) fn is_alone(&self, operation: Operation) -> bool {
        let options = Options::Write(self.options);
        let review = self.review(operation, &self.target.name, None, options);
        !self.converts() && !self.inner.admission.is_seen(&review)
    }
}
