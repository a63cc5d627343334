//! Kubernetes' EncryptionConfiguration: which resources are encrypted, and how.
//!
//! ```yaml
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: EncryptionConfiguration
//! resources:
//!   - resources: [secrets, widgets.example.com]
//!     providers:
//!       - aesgcm: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}
//!       - identity: {}
//! ```
//!
//! # Theory
//!
//! A file is parsed into a tree, which is traversed once by hand. So all faults are reported
//! together, each with its place in the file and with Kubernetes' text. It accepts and refuses the
//! same files as Kubernetes' API server with its default feature gates, which refuse `kms` of
//! version 1, the default version.
//!
//! | a resource is named by | its providers |
//! |---|---|
//! | its own name | the providers of every entry that names it, in order |
//! | `*.group` | the same, if no entry names it |
//! | `*.*` | the same, if no entry names it or its group |
//! | nothing | none: it is stored unencrypted, and encrypted values are not read |
//!
//! An entry after one that covers all of it is refused, because it would have no effect.

mod document;
mod error;
mod rules;
#[cfg(test)]
mod tests;

pub use error::{ConfigError, Fault, Violation};

use crate::kms::Plugin;
use crate::provider::{Chain, Provider};
use crate::resource::GroupResource;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Maximum size of a configuration file in bytes: 1 MiB, some thousands of keys.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// A valid configuration: every encrypted resource with its providers.
#[derive(Debug)]
pub struct EncryptionConfig {
    /// By group, then by resource; `*` as in the file.
    chains: BTreeMap<String, BTreeMap<String, Arc<Chain>>>,
    /// The plugins, in the order of the file.
    plugins: Vec<Arc<Plugin>>,
    /// SHA-256 of the file.
    hash: [u8; 32],
}

impl EncryptionConfig {
    /// Parses a configuration in YAML or JSON.
    ///
    /// # Errors
    ///
    /// What Kubernetes' API server refuses; each fault with its place.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        let mut chains: BTreeMap<String, BTreeMap<String, Arc<Chain>>> = BTreeMap::new();
        let mut plugins = Vec::new();
        for entry in document::read(text)? {
            plugins.extend(entry.providers.iter().filter_map(|provider| match &**provider {
                Provider::Kms(plugin) => Some(plugin.clone()),
                _ => None,
            }));
            for GroupResource { group, resource } in entry.resources {
                let chain = chains.entry(group).or_default().entry(resource).or_default();
                Arc::make_mut(chain).providers.extend(entry.providers.iter().cloned());
            }
        }
        Ok(Self { chains, plugins, hash: Sha256::digest(text).into() })
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse). Also if the file cannot be read, or has more than
    /// [`FILE_BYTES_MAX`] bytes.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&setpoint_small_file::read(path, FILE_BYTES_MAX)?)
    }

    /// SHA-256 of the file.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// The plugins, in the order of the file.
    pub(crate) fn plugins(&self) -> &[Arc<Plugin>] {
        &self.plugins
    }

    /// The providers of a resource, if it has any.
    pub(crate) fn chain(&self, (group, resource): (&str, &str)) -> Option<&Arc<Chain>> {
        let of = |group: &str, resource: &str| self.chains.get(group)?.get(resource);
        of(group, resource).or_else(|| of(group, "*")).or_else(|| of("*", "*"))
    }

    /// Every chain, for the summary at start.
    pub(crate) fn chains(&self) -> impl Iterator<Item = (GroupResource, &Chain)> {
        self.chains.iter().flat_map(|(group, resources)| {
            resources.iter().map(|(resource, chain)| {
                let name = GroupResource { group: group.clone(), resource: resource.clone() };
                (name, &**chain)
            })
        })
    }

    /// One line per resource: which key writes, and how many providers read. No secrets.
    pub fn summary(&self) -> Vec<String> {
        self.chains()
            .map(|(name, chain)| {
                let writer = chain.writer_name();
                format!("{name}: written with {writer}, {} providers", chain.providers.len())
            })
            .collect()
    }
}
