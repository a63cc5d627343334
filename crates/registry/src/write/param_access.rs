//! Authorization of admission policies and bindings: who writes one must be able to read the params
//! that it refers to (spec: admission §5).
//!
//! | write                                    | requires                                     |
//! |------------------------------------------|----------------------------------------------|
//! | a policy with a new `paramKind`          | `get` of all objects of the kind             |
//! | a binding with a new `paramRef` or policy | `get` of the object, `list` for a selector  |
use super::Write;
use crate::attributes::ResourcePath;
use crate::authorize::Decision;
use crate::kind::Reads;
use crate::routed::Requested;
use crate::stored::tree;
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::field::{Error, Path};
use setpoint_object::{ApiError, GroupVersion, GroupVersionResource};

impl Write<'_> {
    /// Checks that the user may read the params of a valid policy or binding.
    ///
    /// # Errors
    ///
    /// 422: the user may not.
    pub(super) async fn check_params(
        &self,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let Some(reads) = self.resource.kind.needs.reads else { return Ok(()) };
        let spec = &new["spec"];
        let changes = |members: &[&str]| {
            old.is_none_or(|old| members.iter().any(|m| old["spec"].get(*m) != spec.get(*m)))
        };
        let error = match reads {
            Reads::ParamKind if spec["paramKind"].is_object() && changes(&["paramKind"]) => {
                self.kind_error(&spec["paramKind"]).await?
            }
            Reads::Params { policies } if changes(&["paramRef", "policyName"]) => {
                self.reference_error(spec, policies).await?
            }
            _ => None,
        };
        match error {
            Some(error) => Err(self.invalid(new, &[error])),
            None => Ok(()),
        }
    }
    async fn kind_error(&self, kind: &Value) -> Result<Option<Error>, ApiError> {
        let path =
            ResourcePath { name: "*".to_owned(), namespace: "*".to_owned(), ..self.params(kind) };
        if self.may_read(Verb::Get, path).await? {
            return Ok(None);
        }
        let text = |member: &str| kind[member].as_str().unwrap_or_default();
        let detail = format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            self.attributes.identity.user,
            text("kind"),
            text("apiVersion")
        );
        Ok(Some(Error::forbidden(Path::new("spec").child("paramKind"), detail)))
    }
    async fn reference_error(
        &self,
        spec: &Value,
        policies: &str,
    ) -> Result<Option<Error>, ApiError> {
        let reference = &spec["paramRef"];
        if !reference.is_object() {
            return Ok(None);
        }
        let text = |member: &str| reference[member].as_str().unwrap_or_default();
        let policies = GroupVersionResource::new(self.resource.kind.group, "v1", policies);
        let name = spec["policyName"].as_str().unwrap_or_default();
        let objects = crate::admission::Objects::of_write(self.inner, self.thread);
        let kind = match objects.get(&policies, "", name).await? {
            Some(policy) => tree(&policy.bytes)?["spec"]["paramKind"].take(),
            None => Value::Null,
        };
        let verb = if text("name").is_empty() { Verb::List } else { Verb::Get };
        let path = ResourcePath {
            name: text("name").to_owned(),
            namespace: text("namespace").to_owned(),
            ..self.params(&kind)
        };
        let word = verb.as_str().to_owned();
        if self.may_read(verb, path).await? {
            return Ok(None);
        }
        let detail = format!(
            "user {} does not have {word:?} permission on the object referenced by paramRef",
            self.attributes.identity.user
        );
        Ok(Some(Error::forbidden(Path::new("spec").child("paramRef"), detail)))
    }
    /// The resource of a `paramKind`; all resources if it is not known.
    fn params(&self, kind: &Value) -> ResourcePath {
        let text = |member: &str| kind[member].as_str().unwrap_or_default();
        let version = GroupVersion::parse(text("apiVersion")).filter(|_| !text("kind").is_empty());
        let row = version.and_then(|version| {
            let catalog = self.inner.catalog.borrow();
            let mut rows = catalog.group_version(&version.group, &version.version);
            rows.find(|row| *row.gvk.kind == *text("kind")).cloned()
        });
        let (group, version, resource) = match &row {
            Some(row) => (&*row.gvk.group, &*row.gvk.version, &*row.resource),
            None => ("*", "*", "*"),
        };
        ResourcePath {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace: String::new(),
            name: String::new(),
            subresource: None,
        }
    }
    async fn may_read(&self, verb: Verb, path: ResourcePath) -> Result<bool, ApiError> {
        let request = self.attributes.with(verb, Requested::Unrouted(path));
        let decision = self.inner.authorization.decide(&request).await;
        Ok(matches!(decision, Ok(Decision::Allow(_))))
    }
}
