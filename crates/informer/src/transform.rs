//! Changing objects on their way into the cache, most often to hold less of them.
use bytes::Bytes;
use setpoint_object::skim::SkimError;
use setpoint_object::{Head, Prune};
use std::sync::Arc;

/// Changes an object's JSON before it is queued; seen once by every object that enters, never by
/// what a resync tells again (FIFO-24).
///
/// It must be cheap and deterministic, and leave alone what keys and index functions need
/// (FIFO-25): the key and the resourceVersion are taken before it. A failure rejects a watched
/// object, and fails a list as a whole, which is then repeated. Where it panics, the object is
/// taken in as it came, and [`InformerStatus::panics`](crate::InformerStatus::panics) counts it.
pub type Transform = Arc<dyn Fn(Bytes) -> Result<Bytes, TransformError> + Send + Sync>;

/// A transform failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("transform the object: {0}")]
pub struct TransformError(pub String);

/// Takes `metadata.managedFields` out, which is often a third of an object and which few
/// controllers read.
///
/// # Errors
/// When the bytes are not a JSON object.
pub fn without_managed_fields(object: Bytes) -> Result<Bytes, TransformError> {
    pruned(object, &Prune::managed_fields())
}

/// Takes fields out.
///
/// # Errors
/// When the bytes are not a JSON object.
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
    fn managed_fields_go_wherever_they_stand_and_nothing_else_does() {
        let fields = r#""managedFields":[{"manager":"a,b","x":{"managedFields":1}}]"#;
        for (members, left) in [
            (fields.to_owned(), r#"{"metadata":{}}"#),
            (format!(r#""name":"n" , {fields}"#), r#"{"metadata":{"name":"n" }}"#),
            (format!(r#"{fields} , "name":"n""#), r#"{"metadata":{ "name":"n"}}"#),
            (format!(r#""a":1,{fields},"b":2"#), r#"{"metadata":{"a":1,"b":2}}"#),
            (r#""name":"n""#.to_owned(), r#"{"metadata":{"name":"n"}}"#),
        ] {
            let object = Bytes::from(format!(r#"{{"metadata":{{{members}}}}}"#));
            assert_eq!(without_managed_fields(object).unwrap(), left.as_bytes());
        }
    }

    #[test]
    fn fifo_25_it_is_idempotent() {
        let object =
            Bytes::from_static(br#"{"metadata":{"managedFields":[],"name":"n"},"data":{}}"#);
        let once = without_managed_fields(object).unwrap();
        assert_eq!(without_managed_fields(once.clone()).unwrap(), once);
    }
}
