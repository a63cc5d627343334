//! DELETE of a collection: a list, then a delete of each object (spec: api-server §5.5).
//!
//! Several deletes are in progress at a time, so that a store which waits for its disk commits them
//! together: one after the other, 50,000 of them would outlast the request's deadline. They are
//! reviewed one after the other ([`Order`]).
use super::delete::warn_of_orphans;
use super::execute::{self, Delete};
use super::order::Order;
use super::persist::check_namespace;
use crate::read::{List, Listed};
use crate::request::*;
use crate::routed::{Attributes, Target};
use crate::shared::Registry;
use futures::stream::{FuturesOrdered, StreamExt};
use setpoint_object::field::Errors;
use setpoint_object::{ApiError, Reason, Skim};

/// Objects per list if the request sets no limit: as kube-apiserver's `deleteCollection` pages.
const PAGE_OBJECTS_MAX: i64 = 10_000;
/// Maximum number of deletes in progress for one request.
const DELETES_MAX: usize = 32;
/// How many deletes end before other requests of the thread have their turn.
///
/// 16: a delete computes for some 60 µs, and over a store in memory it never waits.
const DELETES_PER_TURN: usize = 16;

/// Deletes the matching objects, until an error other than "not found".
pub(super) async fn delete(
    registry: &Registry,
    attributes: &Attributes,
    list: &ListOptions,
    options: &DeleteOptions,
) -> Result<List, ApiError> {
    if registry.inner.is_unsafe(options) {
        let detail = "is not allowed with DELETECOLLECTION, try again after removing the option";
        return Err(invalid(&Errors::from(ignore_refused(detail))));
    }
    let target = attributes.target()?;
    warn_of_orphans(attributes, &target.resource, options);
    let has_limit = list.limit > 0;
    let mut page = list.clone();
    if !has_limit {
        page.limit = PAGE_OBJECTS_MAX;
    }
    let write_options = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
    let mut all: Option<List> = None;
    loop {
        let found = registry.list(attributes, &page).await?;
        if !found.items.is_empty() {
            check_namespace(target)?;
        }
        let order = Order::new();
        let deletes = found.items.iter().enumerate().map(|(idx, item)| {
            let place = order.place(idx);
            let delete = Delete { options: options.clone(), place: Some(place.clone()) };
            let write_options = &write_options;
            async move {
                let deleted = match target_of(target, item) {
                    Ok(one) => {
                        execute::run(registry, attributes, &one, write_options, delete).await
                    }
                    Err(error) => Err(error),
                };
                // One that was gone, or cannot be read, has not waited for those before it.
                place.begin().await?;
                match deleted {
                    Err(error) if error.reason() != Reason::NotFound => {
                        place.fail();
                        Err(error)
                    }
                    _ => {
                        place.pass();
                        Ok(())
                    }
                }
            }
        });
        several_deletes(deletes).await?;
        let next = found.continue_token.clone();
        match &mut all {
            None => all = Some(found),
            Some(all) => all.items.extend(found.items),
        }
        if has_limit || next.is_empty() {
            break;
        }
        page.continue_token = next;
        page.resource_version = String::new();
        page.resource_version_match = None;
    }
    let mut all = all.ok_or_else(ApiError::no_route)?;
    if !has_limit {
        all.continue_token = String::new();
        all.remaining = None;
    }
    Ok(all)
}

/// The target of an item of a list.
fn target_of(list: &Target, item: &Listed) -> Result<Target, ApiError> {
    let mut object = Vec::with_capacity(item.room());
    item.push_to(&mut object);
    let skim = Skim::of(&object).map_err(ApiError::internal)?;
    Ok(Target {
        resource: list.resource.clone(),
        namespace: skim.namespace.clone().into_owned(),
        name: skim.name.clone().into_owned(),
        subresource: None,
    })
}

/// Runs up to [`DELETES_MAX`] deletes at a time. Returns the first error; no delete is started
/// after one, and those in progress are finished.
pub(crate) async fn several_deletes<D>(
    deletes: impl Iterator<Item = D> + Send,
) -> Result<(), ApiError>
where
    D: Future<Output = Result<(), ApiError>> + Send,
{
    let (mut first, mut deletes) = (Ok(()), deletes.fuse());
    let mut running: FuturesOrdered<D> = deletes.by_ref().take(DELETES_MAX).collect();
    let mut n_ended = 0;
    while let Some(result) = running.next().await {
        first = first.and(result);
        if first.is_ok() {
            running.extend(deletes.next());
        }
        n_ended += 1;
        if n_ended % DELETES_PER_TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
    first
}
