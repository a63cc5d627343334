//! The objects of a fresh control plane: namespaces, priority classes and the `kubernetes` Service.
//!
//! They are stored here in the form that the write path would store, with placeholders for uid and
//! time, so that a fresh control plane costs a few commits and no schema work. A test compares them
//! with the output of the write path. Existing objects are not changed. Authorization creates RBAC
//! roles; controllers create configuration maps, service accounts and endpoints.
use crate::shared::Inner;
use crate::stored::{store_error, tree};
use bytes::Bytes;
use setpoint_object::{ApiError, keys};
use setpoint_store::{At, Compare, Op, StoreError, Txn};

/// One line per object: key, space, encoded object with `@uid` and `@now`. In the order of
/// creation.
const OBJECTS: &str = include_str!("objects.txt");

/// Creates the missing objects.
pub(crate) async fn ensure(inner: &Inner) -> Result<(), ApiError> {
    let now = inner.clock.now().rfc3339();
    for (key, object) in OBJECTS.lines().filter_map(|line| line.split_once(' ')) {
        let key = Bytes::from_static(key.as_bytes());
        match inner.store.get(&key, At::Latest).await {
            Ok(found) if found.value.is_none() => {}
            Ok(_) => continue,
            // It exists. A request for it returns the error.
            Err(error @ StoreError::Unreadable { .. }) => {
                tracing::warn!(%error, "an object of the control plane itself cannot be read");
                continue;
            }
            Err(error) => return Err(store_error(error)),
        }
        let object = object.replace("@now", &now).replace("@uid", &inner.uid());
        let mut txn = Txn { compares: vec![Compare::Absent(key.clone())], ..Txn::default() };
        if key.starts_with(keys::SERVICES.as_bytes()) {
            let claims = inner.allocator.claim_all(&tree(object.as_bytes())?);
            txn.compares.extend(claims.compares);
            txn.ops.extend(claims.ops);
        }
        txn.ops.push(Op::Put(key, object.into()));
        // Refused: another server of the same store created it first, or has allocated the
        // Service's address. The object then stays missing; nothing in this crate needs it.
        inner.store.commit(txn).await.map_err(store_error)?;
    }
    Ok(())
}
