//! The options of a delete as a client sends them, and their validation.
use super::{DeleteOptions, PropagationPolicy, check_dry_run};
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::{ApiError, GroupKind};

/// The name of the option to delete what cannot be read.
pub const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

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
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`.
    pub ignore_store_read_error: Option<bool>,
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
        if self.ignore_store_read_error == Some(true) {
            self.check_alone(&mut errors);
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(invalid(&errors))
    }
    /// An object that cannot be read has nothing that other options could apply to.
    fn check_alone(&self, errors: &mut Errors) {
        let others = [
            ("dryRun", !self.dry_run.is_empty()),
            ("propagationPolicy", self.propagation.is_some()),
            ("orphanDependents", self.orphan_dependents.is_some()),
            ("gracePeriodSeconds", self.grace_period_seconds.is_some()),
            ("preconditions", self.uid.is_some() || self.resource_version.is_some()),
        ];
        for (name, _) in others.iter().filter(|(_, is_set)| *is_set) {
            let detail = format!("cannot be set together with .{name}");
            errors.push(ignore_refused(&detail));
        }
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
            ignore_store_read_error: self.ignore_store_read_error.unwrap_or_default(),
        }
    }
}

/// The error of [`IGNORE_READ_ERROR`] where it may not be set.
pub(crate) fn ignore_refused(detail: &str) -> Error {
    Error::invalid(Path::new(IGNORE_READ_ERROR), &true.into(), detail)
}

/// The error of options.
pub(crate) fn invalid(errors: &Errors) -> ApiError {
    let kind = GroupKind { group: "meta.k8s.io".into(), kind: "DeleteOptions".into() };
    ApiError::invalid(&kind, "", errors)
}

fn propagation(policy: &str) -> Option<PropagationPolicy> {
    match policy {
        "Orphan" => Some(PropagationPolicy::Orphan),
        "Background" => Some(PropagationPolicy::Background),
        "Foreground" => Some(PropagationPolicy::Foreground),
        _ => None,
    }
}
