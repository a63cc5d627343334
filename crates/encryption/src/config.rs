//! Kubernetes' EncryptionConfiguration: which resources are encrypted, with what.
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
//! A file is read as a tree, and the tree is walked once by hand, so that every fault is told with
//! its place in the file and with Kubernetes' words, all at once. What Kubernetes' API server takes
//! is taken here, but for `kms`; what it refuses is refused.
//!
//! | a resource is named by  | what counts                                                          |
//! |-------------------------|----------------------------------------------------------------------|
//! | its own name            | the providers of every entry that names it, in order                 |
//! | `*.group`               | the same, when no entry names it                                     |
//! | `*.*`                   | the same, when no entry names it or its group                        |
//! | nothing                 | it is stored as it is, and what is encrypted is not read             |
//!
//! An entry behind one that covers it all is refused: it would say what never happens.

mod document;
mod error;
mod rules;
#[cfg(test)]
mod tests;

pub use error::{ConfigError, Fault, Why};

use crate::provider::Chain;
use crate::resource::GroupResource;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// The most bytes of a configuration file: 1 MiB, some thousands of keys.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// A configuration that holds: every resource that is encrypted, with its providers.
#[derive(Debug)]
pub struct EncryptionConfig {
    /// By group, then by resource; `*` as it was written.
    chains: BTreeMap<String, BTreeMap<String, Arc<Chain>>>,
    /// SHA-256 of the file.
    hash: [u8; 32],
}

impl EncryptionConfig {
    /// Reads a configuration, YAML or JSON.
    ///
    /// # Errors
    ///
    /// What Kubernetes' API server refuses, and `kms`; each fault with its place.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        let mut chains: BTreeMap<String, BTreeMap<String, Arc<Chain>>> = BTreeMap::new();
        for entry in document::read(text)? {
            for GroupResource { group, resource } in entry.resources {
                let chain = chains.entry(group).or_default().entry(resource).or_default();
                Arc::make_mut(chain).providers.extend(entry.providers.iter().cloned());
            }
        }
        Ok(Self { chains, hash: Sha256::digest(text).into() })
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse); and when the file cannot be read, or has more than
    /// [`FILE_BYTES_MAX`] bytes.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&read_file(path)?)
    }

    /// SHA-256 of what it was read from.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// The providers of a resource, if it has any.
    pub(crate) fn chain(&self, (group, resource): (&str, &str)) -> Option<&Arc<Chain>> {
        let of = |group: &str, resource: &str| self.chains.get(group)?.get(resource);
        of(group, resource).or_else(|| of(group, "*")).or_else(|| of("*", "*"))
    }

    /// Every chain, for what is told at start.
    pub(crate) fn chains(&self) -> impl Iterator<Item = (GroupResource, &Chain)> {
        self.chains.iter().flat_map(|(group, resources)| {
            resources.iter().map(|(resource, chain)| {
                let name = GroupResource { group: group.clone(), resource: resource.clone() };
                (name, &**chain)
            })
        })
    }

    /// A line for each resource: which key writes, and which others read. No secrets.
    pub fn summary(&self) -> Vec<String> {
        self.chains()
            .map(|(name, chain)| {
                let writer = chain.writer().map_or("identity".to_owned(), |key| format!("{key:?}"));
                format!("{name}: written with {writer}, {} providers", chain.providers.len())
            })
            .collect()
    }
}

/// The bytes of a file of a bounded size.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let read = || {
        let mut text = Vec::new();
        let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
        std::fs::File::open(path)?.take(limit).read_to_end(&mut text)?;
        Ok(text)
    };
    read().map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}
