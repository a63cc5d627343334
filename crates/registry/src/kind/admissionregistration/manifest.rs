//! Objects of this group in manifests: files of whoever runs the server, not objects of the API.
use super::admission_policy::{MUTATING, MUTATING_BINDING, VALIDATING, VALIDATING_BINDING};
use super::{SUFFIX, is_reserved, policy_binding, policy_spec, webhook_configuration};
use crate::kind::{Kind, list, text, validate_annotations, validate_labels};
use serde_json::Value;
use setpoint_object::field::{self, Error, Errors, Path};
use setpoint_object::meta::ObjectExt;
use setpoint_object::name;
use setpoint_schema::{builtin, decode, default};

/// The version of the objects.
pub(crate) const VERSION: &str = "v1";

/// A kind that manifests may have.
#[derive(Debug)]
pub(crate) struct Manifest {
    kind: &'static Kind,
    /// The rules of the kind, besides those for its metadata.
    validate: fn(&Value, &mut Errors),
    /// What manifests cannot have: (object, file). The text for the operator.
    unsupported: fn(&Value, &str) -> Option<String>,
}

/// ValidatingAdmissionPolicy.
pub(crate) static VALIDATING_POLICY: Manifest = Manifest {
    kind: &VALIDATING,
    validate: policy_spec::validating,
    unsupported: |policy, _| params_of_policy(policy, VALIDATING.kind),
};
/// ValidatingAdmissionPolicyBinding.
pub(crate) static VALIDATING_POLICY_BINDING: Manifest = Manifest {
    kind: &VALIDATING_BINDING,
    validate: policy_binding::validating,
    unsupported: |binding, _| of_binding(binding),
};
/// MutatingAdmissionPolicy.
pub(crate) static MUTATING_POLICY: Manifest = Manifest {
    kind: &MUTATING,
    validate: policy_spec::mutating,
    unsupported: |policy, _| params_of_policy(policy, MUTATING.kind),
};
/// MutatingAdmissionPolicyBinding.
pub(crate) static MUTATING_POLICY_BINDING: Manifest = Manifest {
    kind: &MUTATING_BINDING,
    validate: policy_binding::mutating,
    unsupported: |binding, _| of_binding(binding),
};
/// ValidatingWebhookConfiguration.
pub(crate) static VALIDATING_WEBHOOKS: Manifest = Manifest {
    kind: &webhook_configuration::VALIDATING,
    validate: webhook_configuration::validating,
    unsupported: services,
};
/// MutatingWebhookConfiguration.
pub(crate) static MUTATING_WEBHOOKS: Manifest = Manifest {
    kind: &webhook_configuration::MUTATING,
    validate: webhook_configuration::mutating,
    unsupported: services,
};

impl Manifest {
    /// The name of the kind.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind.kind
    }

    /// Checks the types of an object that was decoded, fills in its defaults and checks its rules.
    /// `problems`: what is known to be wrong in its text.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(crate) fn complete(
        &self,
        object: &mut Value,
        mut problems: Vec<String>,
    ) -> Result<(), String> {
        let kind = self.kind();
        if let Some(schema) = builtin::type_schema(self.kind.group, VERSION, kind) {
            decode::conform(&schema, kind, object, &mut problems).map_err(|e| e.to_string())?;
            default::declared(&schema, object);
        }
        if !problems.is_empty() {
            return Err(decode::strict_error(&problems));
        }
        if let Value::Object(members) = object {
            (self.kind.default)(members, VERSION);
        }
        let mut errors = Errors::new();
        metadata(object, &mut errors);
        (self.validate)(object, &mut errors);
        match errors.is_empty() {
            true => Ok(()),
            false => Err(format!("{kind} {:?}: {}", object.name(), field::aggregate(&errors))),
        }
    }

    /// What it has that manifests cannot have. `file`: where it is.
    pub(crate) fn unsupported(&self, object: &Value, file: &str) -> Option<String> {
        (self.unsupported)(object, file)
    }
}

/// The members of the metadata that somebody would write in a manifest.
fn metadata(object: &Value, errors: &mut Errors) {
    let path = Path::new("metadata");
    let name = object.name();
    if name.is_empty() {
        errors.push(Error::required(path.child("name"), "name or generateName is required"));
    } else {
        let faults = name::dns1123_subdomain(name).into_iter();
        errors.extend(faults.map(|fault| Error::invalid(path.child("name"), &name.into(), fault)));
    }
    let member = |name: &str| object.get("metadata").and_then(|meta| meta.get(name));
    validate_labels(member("labels"), &path.child("labels"), errors);
    validate_annotations(member("annotations"), &path.child("annotations"), errors);
}

fn params_of_policy(policy: &Value, kind: &str) -> Option<String> {
    policy["spec"]["paramKind"].is_object().then(|| {
        let name = policy.name();
        format!("{kind} {name:?}: spec.paramKind is not supported for static manifests")
    })
}

fn of_binding(binding: &Value) -> Option<String> {
    let (name, policy) = (binding.name(), text(&binding["spec"], "policyName"));
    if !is_reserved(policy) {
        return Some(format!(
            "binding {name:?}: spec.policyName {policy:?} must end with {SUFFIX:?}"
        ));
    }
    binding["spec"]["paramRef"]
        .is_object()
        .then(|| format!("binding {name:?}: spec.paramRef is not supported for static manifests"))
}

/// Webhooks that are Services, which may not be there yet when the server starts.
fn services(configuration: &Value, file: &str) -> Option<String> {
    list(configuration, "webhooks").iter().find_map(|webhook| {
        webhook["clientConfig"]["service"].is_object().then(|| {
            format!(
                "webhook {:?} in {:?} (file {file:?}): clientConfig.service is not supported for static manifests; use clientConfig.url instead",
                text(webhook, "name"),
                configuration.name()
            )
        })
    })
}
