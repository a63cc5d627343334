//! LeaseCandidates: who may lead, and with which versions.
use super::OLDEST;
use crate::kind::at::{At, check};
use crate::kind::{Kind, MetadataChecks, NameRule, Report, Selectable, versions};
use crate::table::cell;
use semver::Version;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// LeaseCandidate.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: Some(("coordination.k8s.io", "v1beta1")),
    convert: Some(versions::SAME_MEMBERS),
    names: NameRule::Segment,
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    create_on_update: true,
    unconditional_update: false,
    validate,
    validate_change,
    selectable: &[Selectable::new("spec.leaseName")],
    cells: Some(cells),
    rules: "lease, versions, strategy; immutable lease",
    ..Kind::plain("coordination.k8s.io", "LeaseCandidate")
};

fn validate(candidate: &Value, old: Option<&Value>, errors: &mut Report) {
    check(candidate, old, errors, |at| rules(&at.get("spec")));
}
fn rules(spec: &At<'_, '_>) {
    spec.get("leaseName").need();
    let (emulation, binary) = (spec.get("emulationVersion"), spec.get("binaryVersion"));
    let emulated = version(&emulation);
    let version_of_binary = if binary.need() { version(&binary) } else { None };
    if !emulation.text().is_empty() && !binary.text().is_empty() {
        let zero = Version::new(0, 0, 0);
        if version_of_binary.as_ref().unwrap_or(&zero) < emulated.as_ref().unwrap_or(&zero) {
            binary.invalid("must be greater than or equal to `emulationVersion`");
        }
    }
    let strategy = spec.get("strategy");
    if !strategy.need() {
        return;
    }
    if strategy.text() == OLDEST && emulated.is_none_or(|version| version == Version::new(0, 0, 0))
    {
        emulation.required("must be specified when `strategy` is 'OldestEmulationVersion'");
    }
    super::known_strategy(&strategy);
}
fn version(at: &At<'_, '_>) -> Option<Version> {
    if at.text().is_empty() {
        return None;
    }
    let parsed = Version::parse(at.text()).ok();
    if parsed.is_none() {
        at.invalid("must be a valid semantic version");
    }
    parsed
}

fn validate_change(candidate: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(candidate, None, errors, |at| {
            at.get("spec.leaseName").immutable_text(&old["spec"]["leaseName"]);
        });
    }
}

fn cells(candidate: &Value, now: Timestamp) -> Vec<Value> {
    let text = |path: &str| cell::text(candidate, path).into();
    vec![
        cell::name(candidate),
        text("spec.leaseName"),
        text("spec.binaryVersion"),
        text("spec.emulationVersion"),
        cell::age(candidate, now),
    ]
}
