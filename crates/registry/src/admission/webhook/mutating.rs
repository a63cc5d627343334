//! Mutating hooks: one after the other.
use super::configuration::{Hook, Hooks};
use super::response::Patch;
use super::{Failure, condition, response};
use crate::admission::Review;
use crate::admission::matching::Matched;
use crate::admission::mutated::{
    check_size, decode_other, decode_own, managed_fields, restore_entries,
};
use crate::admission::subject::{self, Subject};
use crate::kind::registered::{is_registered, unregistered};
use crate::kind::text;
use serde_json::{Value, json};
use setpoint_object::{ApiError, GroupVersion, GroupVersionKind};
use setpoint_schema::{INLINE_BYTES_MAX, patch};

/// Prefix of the audit annotations about hooks that have changed the object.
const MUTATION: &str = "mutation.webhook.admission.k8s.io";
/// Prefix of the audit annotations with the hooks' patches.
const PATCH: &str = "patch.webhook.admission.k8s.io";

/// Calls the hooks that a request concerns. `object` is null on delete.
///
/// # Errors
///
/// The first refusal, or the first failed call of a hook that fails closed.
pub(super) async fn mutate(
    hooks: Hooks,
    review: &Review<'_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    if !subject::is_scale(review) {
        return round(&hooks, review, object).await;
    }
    let mut scale = subject::mutable_scale(review, object);
    let before = scale.clone();
    round(&hooks, review, &mut scale).await?;
    subject::put_scale(review.resource, object, &before, &scale)
}

/// The object in another version than the request's.
struct Converted {
    tree: Value,
    has_changed: bool,
}

async fn round(hooks: &Hooks, review: &Review<'_>, object: &mut Value) -> Result<(), ApiError> {
    review.reinvocation.lock().begin(object);
    let mut converted: Option<Converted> = None;
    // As it was before the first patch.
    let mut entries: Option<Value> = None;
    for (idx, hook) in hooks.iter().enumerate() {
        if !review.reinvocation.lock().calls(&hook.uid) {
            continue;
        }
        let present = match &converted {
            Some(converted) => &converted.tree,
            None => &*object,
        };
        let present = Some(present).filter(|present| !present.is_null());
        let name = subject::name(review, present);
        let matched = hook.criteria.matches(review, present, name).await?;
        let Some(version) = matched else { continue };
        let subject = Subject::new(review, &version, present, true).await?;
        if !condition::all_met(hook, review, &subject).await? {
            continue;
        }
        let answer = call(hook, idx, review, &subject, &version).await;
        drop(subject);
        if answer.is_ok() && hook.is_reinvoked {
            review.reinvocation.lock().has_called(hook.uid.clone());
        }
        let patched = match answer {
            Ok(patched) => patched,
            Err(Failure::Call(text)) if hook.fails_open => {
                tracing::warn!(hook = hook.name, error = text, "failed calling webhook");
                let round = review.reinvocation.lock().round();
                let key = format!("failed-open.{MUTATION}/round_{round}_index_{idx}");
                review.annotate(key, hook.name.as_str());
                if hook.is_reinvoked {
                    review.reinvocation.lock().has_called(hook.uid.clone());
                }
                None
            }
            Err(failure) => return Err(failure.closed(&hook.name)),
        };
        let Some((tree, has_changed)) = patched else { continue };
        if entries.is_none() {
            entries = Some(managed_fields(object));
        }
        match version {
            Matched::Request => {
                *object = tree;
                converted = None;
            }
            Matched::Equivalent(_) => {
                let has_changed =
                    has_changed || converted.as_ref().is_some_and(|before| before.has_changed);
                converted = Some(Converted { tree, has_changed });
            }
        }
    }
    if let Some(Converted { tree, has_changed: true, .. }) = converted {
        *object = subject::in_version(review, review.resource, &tree).await?.into_owned();
    }
    if let Some(entries) = entries {
        restore_entries(review, object, entries);
    }
    review.reinvocation.lock().end(object);
    Ok(())
}

/// Calls a hook and applies its patch. Returns the new object and whether it differs; `None`: there
/// is no patch.
async fn call(
    hook: &Hook,
    idx: usize,
    review: &Review<'_>,
    subject: &Subject<'_>,
    version: &Matched,
) -> Result<Option<(Value, bool)>, Failure> {
    let round = review.reinvocation.lock().round();
    let annotate = |mutated: bool| {
        let (configuration, webhook) = (json!(hook.configuration), json!(hook.name));
        // In the order of the original's members.
        let value = format!(
            r#"{{"configuration":{configuration},"webhook":{webhook},"mutated":{mutated}}}"#
        );
        review.annotate(format!("{MUTATION}/round_{round}_index_{idx}"), value);
    };
    let answered = response::call(hook, review, subject, true).await;
    let Patch { operations, n_bytes } = match answered {
        Ok(patch) if !patch.operations.is_empty() => patch,
        other => {
            annotate(false);
            return other.map(|_| None);
        }
    };
    // A longer one would only fill the log.
    let noted = (n_bytes <= INLINE_BYTES_MAX).then(|| {
        let (configuration, webhook) = (json!(hook.configuration), json!(hook.name));
        let patch = json!(operations);
        format!(
            r#"{{"configuration":{configuration},"webhook":{webhook},"patch":{patch},"patchType":"JSONPatch"}}"#
        )
    });
    let patched = patched(hook, review, subject, version, (operations, n_bytes)).await;
    let has_changed = matches!(&patched, Ok((_, true)));
    annotate(has_changed);
    let patched = patched.map_err(Failure::Refused)?;
    if let Some(patch) = noted.filter(|patch| patch.len() <= super::ANNOTATION_BYTES_MAX) {
        review.annotate(format!("{PATCH}/round_{round}_index_{idx}"), patch);
    }
    if has_changed {
        review.reinvocation.lock().has_mutated();
    }
    Ok(Some(patched))
}

/// Refuses an object that has become one of a kind that Kubernetes does not know.
fn check_registered(review: &Review<'_>, object: &Value) -> Result<(), ApiError> {
    let group = &*review.resource.gvk.group;
    let [version, kind] = ["apiVersion", "kind"].map(|member| text(object, member));
    let Some(of) = GroupVersion::parse(version).filter(|_| review.resource.has_go_type()) else {
        return Ok(());
    };
    let found = GroupVersionKind::new(of.group, of.version, kind);
    match is_registered(&found, group) {
        true => Ok(()),
        false => Err(ApiError::internal(unregistered(&found, group))),
    }
}

async fn patched(
    hook: &Hook,
    review: &Review<'_>,
    subject: &Subject<'_>,
    version: &Matched,
    (operations, n_bytes): (Vec<Value>, usize),
) -> Result<(Value, bool), ApiError> {
    let Some(before) = &subject.object else {
        return Err(ApiError::internal(format_args!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        )));
    };
    if n_bytes > INLINE_BYTES_MAX || patch::may_multiply(&operations) {
        review.thread.leave().await;
    }
    let mut object = Value::clone(before);
    patch::apply_operations(&mut object, operations).map_err(ApiError::internal)?;
    // What follows, also after admission, is work on the whole object.
    review.thread.leave_if_large(&object).await;
    check_size(&object)?;
    for member in ["apiVersion", "kind"] {
        let is_left_out = object[member].is_null() || object[member] == "";
        // What says nothing of its type has that of the endpoint.
        if is_left_out && object.is_object() && review.resource.has_go_type() {
            object[member] = before[member].clone();
        }
        if object[member] != before[member] {
            check_registered(review, &object)?;
            return Err(ApiError::internal(format_args!(
                "admission webhook {:?} changed {member} from {} to {}",
                hook.name, before[member], object[member]
            )));
        }
    }
    let row = match version {
        Matched::Request => review.resource,
        Matched::Equivalent(row) => row,
    };
    // Unknown fields are dropped silently.
    match subject::is_own_kind(review) {
        true => decode_own(row, &mut object)?,
        false => decode_other(&subject.kind, &mut object)?,
    };
    let has_changed = object != **before;
    Ok((object, has_changed))
}
