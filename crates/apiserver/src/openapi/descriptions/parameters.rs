//! Descriptions of parameters, from the paths of a published document.
//!
//! Operations with the same action describe a parameter alike, except the options of subresources
//! like `pods/log`. So a document has a few dozen texts, and those of an operation are found
//! without a row for each.

use super::{Bounded, OpenApiDescriptions, OpenApiFileError};
use crate::openapi::parameter::{self, Parameter};
use crate::openapi::path::Action;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

/// The descriptions of each parameter. Of several for the same place, the first counts.
#[derive(Debug, Default)]
pub(super) struct Parameters(HashMap<Parameter, Described>);

#[derive(Debug, Default)]
struct Described {
    /// As an option of a subresource: by resource and subresource, `pods/log`.
    of_options: HashMap<String, Box<str>>,
    /// By `x-kubernetes-action`.
    of_actions: HashMap<String, Box<str>>,
    /// The first that was found.
    of_any: Option<Box<str>>,
}

/// The operations of a path.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PathItem {
    get: Option<Operation>,
    put: Option<Operation>,
    post: Option<Operation>,
    delete: Option<Operation>,
    patch: Option<Operation>,
    parameters: Vec<Published>,
}
#[derive(Default, Deserialize)]
#[serde(default)]
struct Operation {
    #[serde(rename = "x-kubernetes-action")]
    action: String,
    parameters: Vec<Published>,
}
/// A parameter as published.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Published {
    name: String,
    #[serde(rename = "in")]
    place: String,
    description: String,
    /// Its place among those of a document of version 2 that operations share.
    #[serde(rename = "$ref")]
    reference: Option<String>,
}

impl Parameters {
    /// Adds those of a path.
    pub(super) fn add(
        &mut self,
        path: &str,
        item: &PathItem,
        shared: &BTreeMap<String, Published>,
        bounded: &mut Bounded,
    ) -> Result<(), OpenApiFileError> {
        let place = place_of_options(path);
        let operations = [&item.get, &item.put, &item.post, &item.delete, &item.patch];
        for operation in operations.into_iter().flatten() {
            for published in operation.parameters.iter().chain(&item.parameters) {
                let referred = published
                    .reference
                    .as_deref()
                    .and_then(|reference| shared.get(reference.strip_prefix("#/parameters/")?));
                let published = referred.unwrap_or(published);
                let known = parameter::known(&published.place, &published.name);
                let Some(known) = known.filter(|_| !published.description.is_empty()) else {
                    continue;
                };
                let described = self.0.entry(known).or_default();
                let text = &published.description;
                if described.of_any.is_none() {
                    described.of_any = Some(bounded.text(text, &published.name)?);
                }
                let (places, key) = match &place {
                    Some(place) => (&mut described.of_options, &**place),
                    None => (&mut described.of_actions, &*operation.action),
                };
                if !places.contains_key(key) {
                    places.insert(key.to_owned(), bounded.text(text, &published.name)?);
                }
            }
        }
        Ok(())
    }
}

impl OpenApiDescriptions {
    /// The description of a parameter of an operation. `sub`: the resource and the subresource, if
    /// it is one.
    pub(in crate::openapi) fn of_parameter(
        &self,
        sub: Option<(&str, &str)>,
        action: Action,
        parameter: Parameter,
    ) -> Option<&str> {
        let described = self.parameters.0.get(&parameter)?;
        let of_option =
            sub.and_then(|(resource, sub)| described.of_options.get(&format!("{resource}/{sub}")));
        let found = of_option.or_else(|| described.of_actions.get(action.extension()));
        found.or(described.of_any.as_ref()).map(|text| &**text)
    }
}

/// The resource and the subresource of a path, `pods/log`, if it has options of its own.
fn place_of_options(path: &str) -> Option<String> {
    let (above, below) = path.split_once("/{name}/")?;
    let resource = above.rsplit('/').next()?;
    let sub = below.split('/').next()?;
    (!parameter::of_subresource(sub).is_empty()).then(|| format!("{resource}/{sub}"))
}
