//! The options of a delete as a client sends them, and their validation.
use super::{DeleteOptions, PropagationPolicy, check_dry_run};
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::{ApiError, GroupKind};

/// The options of a delete before validation: of a query, of a body, or inside an Eviction.
#[derive(Debug, Clone, Default)]
pub struct RawDeleteOptions {
    /// `dryRun`.
    pub dry_run: Vec<String>,
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `propagationPolicy`.
    pub propagation: Option<String>,
    /// `orphanDependents`.
    pub orphan_dependents: Option<bool>,
    /// `preconditions.uid`.
    pub uid: Option<String>,
    /// `preconditions.resourceVersion`.
    pub resource_version: Option<String>,
}

impl RawDeleteOptions {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// 422 on `DeleteOptions`, with a cause for each violation.
    pub fn validate(&self) -> Result<(), ApiError> {
        let mut errors = Errors::new();
        let path = || Path::new("propagationPolicy");
        if let (Some(policy), Some(_)) = (&self.propagation, self.orphan_dependents) {
            errors.push(Error::invalid(
                path(),
                &policy.as_str().into(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if let Some(policy) = self.propagation.as_deref()
            && propagation(policy).is_none()
        {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(Error::not_supported(path(), &policy.into(), &supported));
        }
        check_dry_run(&self.dry_run, &mut errors);
        if errors.is_empty() {
            return Ok(());
        }
        let kind = GroupKind { group: "meta.k8s.io".into(), kind: "DeleteOptions".into() };
        Err(ApiError::invalid(&kind, "", &errors))
    }
    /// The options, valid or not: an unknown policy is none, and any `dryRun` is a dry run.
    pub fn into_options(self) -> DeleteOptions {
        DeleteOptions {
            dry_run: !self.dry_run.is_empty(),
            grace_period_seconds: self.grace_period_seconds,
            propagation: self.propagation.as_deref().and_then(propagation),
            orphan_dependents: self.orphan_dependents,
            uid: self.uid,
            resource_version: self.resource_version,
        }
    }
}

fn propagation(policy: &str) -> Option<PropagationPolicy> {
    match policy {
        "Orphan" => Some(PropagationPolicy::Orphan),
        "Background" => Some(PropagationPolicy::Background),
        "Foreground" => Some(PropagationPolicy::Foreground),
        _ => None,
    }
}
