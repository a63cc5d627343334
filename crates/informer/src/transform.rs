//! Changes objects before they are cached, most often to make them smaller.
use bytes::Bytes;
use setpoint_object::skim::SkimError;
use setpoint_object::{Head, Prune};
use std::sync::Arc;

/// Changes an object's JSON before it is queued. Called once for each version that enters the
/// cache, and not for a resync or a relist of a version that the cache holds (FIFO-24).
///
/// It must be cheap and deterministic, and must not remove fields that index functions read
/// (FIFO-25); the key and the resourceVersion are read before it. Pruned fields, by default
/// `managedFields`, are removed before it. If it fails, a watched object is rejected; a list is
/// rejected as a whole and repeated. If it panics, the object is stored unchanged, and
/// [`InformerStatus::panics`](crate::InformerStatus::panics) counts it.
pub type Transform = Arc<dyn Fn(Bytes) -> Result<Bytes, TransformError> + Send + Sync>;

/// A transform failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("transform the object: {0}")]
pub struct TransformError(pub String);

/// Removes fields.
///
/// # Errors
/// If the bytes are not a JSON object.
pub fn pruned(object: Bytes, prune: &Prune) -> Result<Bytes, TransformError> {
    let failed = |error: SkimError| TransformError(error.to_string());
    let head = Head::of(&object).map_err(failed)?;
    let mut left = Vec::new();
    prune.cut(&object, &head, &mut left).map_err(failed)?;
    Ok(left.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_are_removed_from_any_position_and_nothing_else_is() {
        let fields = r#""managedFields":[{"manager":"a,b","x":{"managedFields":1}}]"#;
        for (members, left) in [
            (fields.to_owned(), r#"{"metadata":{}}"#),
            (format!(r#""name":"n" , {fields}"#), r#"{"metadata":{"name":"n" }}"#),
            (format!(r#"{fields} , "name":"n""#), r#"{"metadata":{ "name":"n"}}"#),
            (format!(r#""a":1,{fields},"b":2"#), r#"{"metadata":{"a":1,"b":2}}"#),
            (r#""name":"n""#.to_owned(), r#"{"metadata":{"name":"n"}}"#),
        ] {
            let object = Bytes::from(format!(r#"{{"metadata":{{{members}}}}}"#));
            assert_eq!(pruned(object, &Prune::managed_fields()).unwrap(), left.as_bytes());
        }
    }

    #[test]
    fn fifo_25_it_is_idempotent() {
        let object =
            Bytes::from_static(br#"{"metadata":{"managedFields":[],"name":"n"},"data":{}}"#);
        let once = pruned(object, &Prune::managed_fields()).unwrap();
        assert_eq!(pruned(once.clone(), &Prune::managed_fields()).unwrap(), once);
    }
}
