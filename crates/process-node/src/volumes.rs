//! Volumes of a pod: folders.

use crate::env::{Lookup, PodAddresses, field_of, resource_of};
use crate::paths::{Mounts, below};
use crate::shared::Shared;
use crate::tokens::{Purpose, Tokens};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, KeyToPath, PersistentVolume, PersistentVolumeClaim, Pod,
    ServiceAccount, Volume, VolumeProjection,
};
use setpoint_object::time::Timestamp;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{BoxError, Client, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Files of a volume by path.
type Files = BTreeMap<String, File>;

/// A file of a volume.
#[derive(Debug, PartialEq, Eq)]
struct File {
    bytes: Vec<u8>,
    mode: u32,
    /// `None`: the user of this program.
    owner: Option<u32>,
}

impl File {
    fn new(bytes: Vec<u8>, mode: i32) -> Self {
        Self { bytes, mode: mode as u32, owner: None }
    }
}

/// The lifetime of a token without one of its own: an hour, as a kubelet's.
const TOKEN_SECONDS: i64 = 3600;
/// The mode of files without one.
const FILE_MODE: i32 = 0o644;

/// Prepares the volumes of one pod.
pub(crate) struct Volumes<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) client: &'a Client,
    pub(crate) pod: &'a Pod,
    pub(crate) namespace: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) addresses: PodAddresses,
    pub(crate) tokens: &'a Tokens,
    pub(crate) now: Timestamp,
}

impl Volumes<'_> {
    /// Makes all volumes, or brings them up to date. Returns their folders by name.
    ///
    /// # Errors
    ///
    /// The name of a volume that cannot be made, and why.
    pub(crate) async fn prepare(&self) -> Result<BTreeMap<String, PathBuf>, (String, BoxError)> {
        let mut folders = BTreeMap::new();
        let volumes = self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        for volume in volumes {
            let folder = self.volume(volume).await;
            let folder = folder.map_err(|error| (volume.name.clone(), error))?;
            folders.insert(volume.name.clone(), folder);
        }
        Ok(folders)
    }

    async fn volume(&self, volume: &Volume) -> Result<PathBuf, BoxError> {
        let folder = self.shared.pod_folder(self.uid).join("volumes").join(&volume.name);
        let mode = |mode: Option<i32>| mode.unwrap_or(FILE_MODE);
        let files = if let Some(path) = &volume.host_path {
            return Ok(PathBuf::from(&path.path));
        } else if let Some(claim) = &volume.persistent_volume_claim {
            return self.claim(&claim.claim_name, false).await;
        } else if volume.ephemeral.is_some() {
            let pod = self.pod.metadata.name.as_deref().unwrap_or_default();
            return self.claim(&format!("{pod}-{}", volume.name), true).await;
        } else if volume.empty_dir.is_some() {
            shared_folder(&folder)?;
            return Ok(folder);
        } else if let Some(map) = &volume.config_map {
            let data = self.lookup().config_map(&map.name, map.optional == Some(true)).await?;
            keys(data, map.items.as_deref(), mode(map.default_mode), map.optional == Some(true))?
        } else if let Some(secret) = &volume.secret {
            let name = secret.secret_name.as_deref().unwrap_or_default();
            let is_optional = secret.optional == Some(true);
            let data = self.lookup().secret(name, is_optional).await?;
            keys(data, secret.items.as_deref(), mode(secret.default_mode), is_optional)?
        } else if let Some(downward) = &volume.downward_api {
            self.fields(downward.items.iter().flatten(), mode(downward.default_mode))?
        } else if let Some(projected) = &volume.projected {
            let mut files = Files::new();
            for source in projected.sources.iter().flatten() {
                files.append(&mut self.source(source, mode(projected.default_mode)).await?);
            }
            files
        } else {
            return Err("this kind of volume is not supported on a process node".into());
        };
        let written = folder.clone();
        tokio::task::spawn_blocking(move || write(&written, &files)).await??;
        Ok(folder)
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup { client: self.client, namespace: self.namespace }
    }

    /// The folder of a claim: that of its volume if it is one of this machine, and one of our own
    /// otherwise. `is_own`: the pod must control it.
    async fn claim(&self, name: &str, is_own: bool) -> Result<PathBuf, BoxError> {
        let key = Request::new(self.namespace, name);
        let claim = self.client.api::<PersistentVolumeClaim>().get_live(&key).await?;
        let claim = claim.ok_or_else(|| format!("persistentvolumeclaim \"{name}\" not found"))?;
        if is_own && controller_of(&claim).is_none_or(|owner| owner.uid != *self.uid) {
            let (namespace, pod) = (self.namespace, self.pod.metadata.name.as_deref());
            let pod = pod.unwrap_or_default();
            return Err(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
            )
            .into());
        }
        let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        if let Some(bound) = bound.filter(|bound| !bound.is_empty()) {
            let volumes = self.client.api::<PersistentVolume>();
            let volume = volumes.get_live(&Request::cluster(bound)).await?;
            let spec = volume.and_then(|volume| volume.spec);
            let path = spec.and_then(|spec| match (spec.host_path, spec.local) {
                (Some(path), _) => Some(path.path),
                (None, Some(local)) => Some(local.path),
                (None, None) => None,
            });
            if let Some(path) = path {
                tokio::fs::create_dir_all(&path).await?;
                return Ok(PathBuf::from(path));
            }
        }
        let uid = claim.metadata.uid.unwrap_or_default();
        let folder = self.shared.claim_folder(self.namespace, name, &uid);
        shared_folder(&folder)?;
        Ok(folder)
    }

    fn fields<'f>(
        &self,
        items: impl Iterator<Item = &'f DownwardAPIVolumeFile>,
        mode: i32,
    ) -> Result<Files, BoxError> {
        let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
        let containers: Vec<&Container> = containers.collect();
        let mut files = Files::new();
        for item in items {
            let text = if let Some(field) = &item.field_ref {
                field_of(self.pod, &field.field_path, self.addresses)?
            } else if let Some(resource) = &item.resource_field_ref {
                let name = resource.container_name.as_deref().unwrap_or_default();
                let container = containers.iter().find(|container| container.name == name);
                let divisor = resource.divisor.as_ref().map_or("", |divisor| &divisor.0);
                container.map_or_else(String::new, |container| {
                    resource_of(self.pod, container, &resource.resource, divisor)
                })
            } else {
                continue;
            };
            let mode = item.mode.unwrap_or(mode);
            files.insert(item.path.clone(), File::new(text.into_bytes(), mode));
        }
        Ok(files)
    }

    async fn source(&self, source: &VolumeProjection, mode: i32) -> Result<Files, BoxError> {
        if let Some(map) = &source.config_map {
            let is_optional = map.optional == Some(true);
            let data = self.lookup().config_map(&map.name, is_optional).await?;
            return keys(data, map.items.as_deref(), mode, is_optional);
        }
        if let Some(secret) = &source.secret {
            let is_optional = secret.optional == Some(true);
            let data = self.lookup().secret(&secret.name, is_optional).await?;
            return keys(data, secret.items.as_deref(), mode, is_optional);
        }
        if let Some(downward) = &source.downward_api {
            return self.fields(downward.items.iter().flatten(), mode);
        }
        let Some(token) = &source.service_account_token else {
            return Err("this source of a projected volume is not supported".into());
        };
        let audience = token.audience.clone().filter(|audience| !audience.is_empty());
        let seconds = token.expiration_seconds.unwrap_or(TOKEN_SECONDS);
        let text = self.token(audience, seconds).await?;
        let mut file = File::new(text.into_bytes(), mode);
        if let Some(user) = common_user(self.pod) {
            file.mode = 0o600;
            file.owner = user.filter(|_| rustix::process::geteuid().is_root());
        }
        Ok(Files::from([(token.path.clone(), file)]))
    }

    /// A token of the pod's service account, bound to the pod.
    async fn token(&self, audience: Option<String>, seconds: i64) -> Result<String, BoxError> {
        let spec = self.pod.spec.as_ref();
        let account = spec.and_then(|spec| spec.service_account_name.as_deref());
        let account = account.unwrap_or("default");
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(audience.iter().cloned().collect()),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: self.pod.metadata.name.clone(),
                    uid: Some(self.uid.to_owned()),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let key = Request::new(self.namespace, account);
        let purpose = Purpose { account: account.to_owned(), audience, seconds };
        let new = async {
            let tokens = self.client.api::<ServiceAccount>().token();
            let answer: TokenRequest = tokens.create(&key, &request).await?;
            answer.status.ok_or_else(|| "the token is missing".into())
        };
        self.tokens.get(purpose, self.now, new).await
    }
}

/// Makes a folder that processes of every user may write into, as a kubelet does for an `emptyDir`.
/// One that exists stays as it is.
fn shared_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777))
}

/// The user of all containers of a pod (`Some(None)`: that of this program), unless they differ.
fn common_user(pod: &Pod) -> Option<Option<u32>> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut users = containers.map(|container| {
        let own = container.security_context.as_ref().and_then(|context| context.run_as_user);
        own.or(of_pod)
    });
    let first = users.next()?;
    users.all(|user| user == first).then(|| first.and_then(|user| u32::try_from(user).ok()))
}

/// Files of the keys of a map: all of them, or those that items name.
fn keys(
    data: Option<BTreeMap<String, Vec<u8>>>,
    items: Option<&[KeyToPath]>,
    mode: i32,
    is_optional: bool,
) -> Result<Files, BoxError> {
    let data = data.unwrap_or_default();
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data.into_iter().map(|(key, bytes)| (key, File::new(bytes, mode))).collect());
    };
    let mut files = Files::new();
    for item in items {
        match data.get(&item.key) {
            Some(bytes) => {
                let file = File::new(bytes.clone(), item.mode.unwrap_or(mode));
                files.insert(item.path.clone(), file);
            }
            None if is_optional => {}
            None => return Err(format!("references non-existent key: {}", item.key).into()),
        }
    }
    Ok(files)
}

/// Makes the files of a folder: changed ones are replaced at once each, others are removed.
fn write(folder: &Path, files: &Files) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut wanted = BTreeSet::new();
    for (path, File { bytes, mode, owner }) in files {
        let Some(target) = below(folder, path) else { continue };
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        if !has(&target, bytes) {
            let mut new = target.clone().into_os_string();
            new.push(".setpoint-new");
            // Its content is nobody else's before it has its mode.
            let mut open = std::fs::OpenOptions::new();
            open.write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?
                .write_all(bytes)?;
            if owner.is_some() {
                std::os::unix::fs::chown(&new, *owner, None)?;
            }
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(*mode))?;
            std::fs::rename(&new, &target)?;
        }
        wanted.insert(target);
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && !wanted.contains(&path) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Whether a file has this content. Containers may have put anything in its place.
fn has(path: &Path, bytes: &[u8]) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
        && setpoint_small_file::read(path, bytes.len()).is_ok_and(|known| known == bytes)
}

/// The mounts of a container.
///
/// # Errors
///
/// A mount of no volume, or a path that leaves its volume.
pub(crate) fn mounts(
    container: &Container,
    folders: &BTreeMap<String, PathBuf>,
    variables: &[(String, String)],
    own: &Path,
) -> Result<Mounts, BoxError> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let folder = folders.get(&mount.name);
        let folder = folder.ok_or_else(|| format!("no volume {:?}", mount.name))?;
        let expression = mount.sub_path_expr.as_deref().unwrap_or_default();
        let path = match expression.is_empty() {
            true => mount.sub_path.clone().unwrap_or_default(),
            false => crate::env::expand(expression, variables),
        };
        let target = below(folder, &path)
            .ok_or_else(|| format!("subPath \"{path}\" must stay in its volume"))?;
        if !path.is_empty() && !target.exists() {
            shared_folder(&target)?;
        }
        mounts.push((mount.mount_path.clone(), target));
    }
    let message = container.termination_message_path.clone();
    let message = message.unwrap_or_else(|| "/dev/termination-log".to_owned());
    mounts.push((message, own.join("termination-log")));
    Ok(Mounts::new(mounts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_and_removed() {
        let own = tempfile::tempdir().unwrap();
        let folder = own.path().join("volume");
        std::fs::create_dir(&folder).unwrap();
        let files = |pairs: &[(&str, &str)]| -> Files {
            let file = |(path, text): &(&str, &str)| {
                ((*path).to_owned(), File::new(text.as_bytes().to_vec(), 0o640))
            };
            pairs.iter().map(file).collect()
        };
        write(&folder, &files(&[("a", "1"), ("b/c", "2"), ("../x", "no")])).unwrap();
        let read = |path: &str| std::fs::read_to_string(folder.join(path)).ok();
        assert_eq!((read("a").unwrap(), read("b/c").unwrap()), ("1".into(), "2".into()));
        let mode = std::fs::metadata(folder.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(!own.path().join("x").exists());
        write(&folder, &files(&[("b/c", "3")])).unwrap();
        assert_eq!((read("a"), read("b/c").unwrap()), (None, "3".into()));
    }

    /// They were the program's alone: with `runAsUser` nothing could be written.
    #[test]
    fn processes_of_every_user_may_write_into_an_empty_dir() {
        let own = tempfile::tempdir().unwrap();
        let folder = own.path().join("a/b");
        let mode = |folder: &Path| std::fs::metadata(folder).unwrap().permissions().mode() & 0o777;
        shared_folder(&folder).unwrap();
        assert_eq!(mode(&folder), 0o777);
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        shared_folder(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700, "what a process has set stays");
    }

    /// A token was readable for the program's user only.
    #[test]
    fn a_token_is_for_the_user_of_all_containers() {
        let user = |pod: serde_json::Value| common_user(&serde_json::from_value(pod).unwrap());
        let container = |user: Option<i64>| serde_json::json!({"name": "c", "securityContext": {"runAsUser": user}});
        let pod = |of_pod: Option<i64>, users: [Option<i64>; 2]| {
            serde_json::json!({"spec": {
                "securityContext": {"runAsUser": of_pod}, "containers": users.map(container),
            }})
        };
        assert_eq!(user(pod(None, [None, None])), Some(None));
        assert_eq!(user(pod(Some(7), [None, Some(7)])), Some(Some(7)));
        assert_eq!(user(pod(None, [Some(7), Some(8)])), None);
        assert_eq!(user(pod(None, [Some(7), None])), None);
    }

    #[test]
    fn items_choose_keys() {
        let data = BTreeMap::from([("k".to_owned(), b"v".to_vec())]);
        let item = |key: &str| KeyToPath {
            key: key.to_owned(),
            path: "file".to_owned(),
            ..KeyToPath::default()
        };
        let found = keys(Some(data.clone()), Some(&[item("k")]), 0o644, false).unwrap();
        assert_eq!(found["file"].bytes, b"v");
        assert!(keys(Some(data.clone()), Some(&[item("x")]), 0o644, false).is_err());
        assert!(keys(Some(data), Some(&[item("x")]), 0o644, true).unwrap().is_empty());
    }

    /// The second path had no key: the volume was never mounted.
    #[test]
    fn a_key_may_have_several_paths() {
        let data = BTreeMap::from([("k".to_owned(), b"v".to_vec())]);
        let item = |path: &str, mode: Option<i32>| KeyToPath {
            key: "k".to_owned(),
            path: path.to_owned(),
            mode,
            ..KeyToPath::default()
        };
        let items = [item("a", None), item("b/c", Some(0o600))];
        let found = keys(Some(data), Some(&items), 0o644, false).unwrap();
        assert_eq!(found["a"], File::new(b"v".to_vec(), 0o644));
        assert_eq!(found["b/c"], File::new(b"v".to_vec(), 0o600));
    }
}
