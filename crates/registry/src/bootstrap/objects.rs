//! The objects of a fresh control plane: namespaces, priority classes and the `kubernetes` Service.
//!
//! They are kept as the write path would store them, with places for uid and time, so that a fresh
//! control plane costs a few commits and no schema work; a test holds them to what the write path
//! makes of the same objects. What is there already is left alone. RBAC roles come with
//! authorization; configuration maps, service accounts and end points from the controllers that
//! keep them.
use crate::shared::Inner;
use crate::stored::{store_error, tree};
use bytes::Bytes;
use setpoint_object::{ApiError, keys};
use setpoint_store::{At, Compare, Op, StoreError, Txn};

/// A line each: key, space, encoded object with `@uid` and `@now`. In the order of creation.
const OBJECTS: &str = include_str!("objects.txt");

/// Creates what is missing.
pub(crate) async fn ensure(inner: &Inner) -> Result<(), ApiError> {
    let now = inner.clock.now().rfc3339();
    for (key, object) in OBJECTS.lines().filter_map(|line| line.split_once(' ')) {
        let key = Bytes::from_static(key.as_bytes());
        match inner.store.get(&key, At::Latest).await {
            Ok(found) if found.value.is_none() => {}
            Ok(_) => continue,
            // It is there, and whoever asks for it is told what is wrong with it.
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
        // Refused: another server of the same store was faster, or has given the Service's address
        // away. Then there is none, and nothing here needs it.
        inner.store.commit(txn).await.map_err(store_error)?;
    }
    Ok(())
}
