//! Checks of what the row of a kind requires besides the right to write: a label of the namespace,
//! rights to change parts of `status`. Faults are reported before all other errors.
use super::Write;
use crate::admission::{Review, signer_paths};
use crate::attributes::ResourcePath;
use crate::authorize::{Decision, forbidden};
use crate::kind::{NeededRight, RequiredOn};
use crate::routed::Requested;
use crate::subresource::Subresource;
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::field::{Error, Errors};
use setpoint_object::meta::ObjectExt;

impl Write<'_> {
    /// Reports that the namespace lacks a label.
    ///
    /// # Errors
    ///
    /// The namespace cannot be read.
    pub(super) async fn check_namespace_label(
        &self,
        review: &Review<'_>,
        new: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) -> Result<(), ApiError> {
        let Some(needed) = (self.resource.kind.needs.namespace_label)(new, old) else {
            return Ok(());
        };
        let Some(namespace) = review.namespace_object().await? else {
            let (what, name) = (needed.verifies, review.namespace);
            let detail = format!(
                "could not retrieve namespace to verify {what}: namespaces \"{name}\" not found"
            );
            put_first(errors, [Error::internal(needed.field, detail)]);
            return Ok(());
        };
        let labels = namespace.meta().and_then(|meta| meta.get("labels"));
        if labels.is_none_or(|labels| labels[needed.label] != "true") {
            let detail = format!(
                "{} requires the `{}: true` label on the containing namespace",
                needed.gives, needed.label
            );
            put_first(errors, [Error::forbidden(needed.field, detail)]);
        }
        Ok(())
    }
    /// Reports what the user may not change of the status.
    pub(super) async fn check_status_rights(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let verb = self.attributes.verb.as_str();
        let needed = (self.resource.kind.needs.status_rights)(&self.context(), verb, new, old);
        let mut found = Vec::new();
        for right in needed {
            match &right.on {
                RequiredOn::Subresource { subresource, name } => {
                    if let Some(why) = self.refusal(&right, subresource, name.as_deref()).await {
                        let detail = format!("{}: {why}", right.detail);
                        found.push(Error::forbidden(right.field, detail));
                    }
                }
                RequiredOn::Signer(signer) => {
                    if errors.is_empty() && !self.may_on_signer(&right.verbs, signer).await {
                        found.push(Error::forbidden(right.field, right.detail));
                    }
                }
            }
        }
        put_first(errors, found);
    }
    /// Whether one of the verbs is allowed on a signer.
    async fn may_on_signer(&self, verbs: &[String], signer: &str) -> bool {
        for verb in verbs {
            for path in signer_paths(signer) {
                let path = Requested::Unrouted(path);
                let request = self.attributes.with(Verb::from(&**verb), path);
                let decided = self.inner.authorization.decide(&request).await;
                if matches!(decided, Ok(Decision::Allow(_))) {
                    return true;
                }
            }
        }
        false
    }
    /// Why none of the verbs of a right on a subresource is allowed: that of the first one. `None`:
    /// one is.
    async fn refusal(
        &self,
        right: &NeededRight,
        subresource: &str,
        name: Option<&str>,
    ) -> Option<String> {
        let mut first = None;
        for verb in &right.verbs {
            let namespace = name.map(|_| self.target.namespace.clone());
            let path = ResourcePath {
                group: self.resource.gvk.group.to_string(),
                version: self.resource.gvk.version.to_string(),
                resource: self.resource.resource.to_string(),
                namespace: namespace.unwrap_or_default(),
                name: name.unwrap_or_default().to_owned(),
                subresource: Subresource::of(subresource),
            };
            let request = self.attributes.with(Verb::from(&**verb), Requested::Unrouted(path));
            let reason = match self.inner.authorization.decide(&request).await {
                Ok(Decision::Allow(_)) => return None,
                Ok(Decision::Deny(reason) | Decision::NoOpinion(reason)) => reason,
                Err(error) => error.0.message,
            };
            first.get_or_insert_with(|| forbidden(&request, &reason).0.message);
        }
        first
    }
}

fn put_first(errors: &mut Errors, found: impl IntoIterator<Item = Error>) {
    let others = std::mem::take(errors);
    errors.extend(found);
    errors.extend(others);
}
