//! DELETE of a collection: a list, then a delete of each object (spec: api-server §5.5).
use super::execute::{self, Delete};
use crate::attributes::{Attributes, Target};
use crate::read::List;
use crate::request::*;
use crate::shared::Registry;
use setpoint_object::{ApiError, Reason, Skim};

/// Objects per list if the request sets no limit: as kube-apiserver's `deleteCollection` pages.
const PAGE_OBJECTS_MAX: i64 = 10_000;

/// Deletes the matching objects. Stops at the first error other than "not found".
pub(super) async fn delete(
    registry: &Registry,
    attributes: &Attributes,
    list: &ListOptions,
    options: &DeleteOptions,
) -> Result<List, ApiError> {
    let target = attributes.target()?;
    let has_limit = list.limit > 0;
    let mut page = list.clone();
    if !has_limit {
        page.limit = PAGE_OBJECTS_MAX;
    }
    let write_options = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
    let mut all: Option<List> = None;
    loop {
        let found = registry.list(attributes, &page).await?;
        for item in &found.items {
            let mut object = Vec::with_capacity(item.room());
            item.push_to(&mut object);
            let skim = Skim::of(&object).map_err(ApiError::internal)?;
            let one = Target {
                resource: target.resource.clone(),
                namespace: skim.namespace.clone().into_owned(),
                name: skim.name.clone().into_owned(),
                subresource: None,
            };
            let delete = Delete(options.clone());
            match execute::run(registry, attributes, &one, &write_options, delete).await {
                Err(error) if error.reason() != Reason::NotFound => return Err(error),
                _ => {}
            }
        }
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
