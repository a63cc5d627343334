//! Where a container's paths are on the machine.
//!
//! A process sees the machine's files. A mount path of its container is the path of a folder
//! elsewhere, so it is replaced wherever the pod names it.

use std::path::{Path, PathBuf};

/// The mounts of a container, the longest path first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<(String, PathBuf)>);

impl Mounts {
    /// Mounts from pairs of a path in the container and one of the machine.
    pub(crate) fn new(mounts: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        let trim = |(path, folder): (String, PathBuf)| {
            let path = path.trim_end_matches('/').to_owned();
            (!path.is_empty()).then_some((path, folder))
        };
        let mut mounts: Vec<_> = mounts.into_iter().filter_map(trim).collect();
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(mounts)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.0.iter().map(|(path, folder)| (path.as_str(), folder.as_path()))
    }

    /// A text with mount paths replaced. A path ends where no name can go on, and begins where none
    /// can have begun: `/data` is found in `--dir=/data/x`, and not in `/data2` or `/var/data`.
    pub(crate) fn map(&self, text: &str) -> String {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let (mut mapped, mut rest) = (String::with_capacity(text.len()), text);
        let mut before: Option<char> = None;
        'text: while let Some(c) = rest.chars().next() {
            if c == '/' && !before.is_some_and(|c| is_name(c) || c == '/') {
                for (path, folder) in &self.0 {
                    let Some(after) = rest.strip_prefix(path.as_str()) else { continue };
                    if after.starts_with(is_name) {
                        continue;
                    }
                    mapped.push_str(&folder.to_string_lossy());
                    (before, rest) = (path.chars().last(), after);
                    continue 'text;
                }
            }
            mapped.push(c);
            (before, rest) = (Some(c), &rest[c.len_utf8()..]);
        }
        mapped
    }
}

/// A path below a folder, unless it leaves it.
pub(crate) fn below(folder: &Path, path: &str) -> Option<PathBuf> {
    let is_outside = path.starts_with('/') || path.split('/').any(|part| part == "..");
    (!is_outside).then(|| folder.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_paths_are_replaced_as_whole_paths() {
        let mounts = Mounts::new([
            ("/data".to_owned(), PathBuf::from("/n/v/data")),
            ("/data/sub/".to_owned(), PathBuf::from("/n/v/sub")),
            ("/etc/app.conf".to_owned(), PathBuf::from("/n/v/conf/app.conf")),
        ]);
        for (text, mapped) in [
            ("/data", "/n/v/data"),
            ("--dir=/data/x", "--dir=/n/v/data/x"),
            ("/data/sub/y", "/n/v/sub/y"),
            ("/data/subway", "/n/v/data/subway"),
            ("/data2 /var/data x/data", "/data2 /var/data x/data"),
            ("cat /data/a;ls '/data'", "cat /n/v/data/a;ls '/n/v/data'"),
            ("http://data/x", "http://data/x"),
            ("a:/data:/etc/app.conf", "a:/n/v/data:/n/v/conf/app.conf"),
            ("é/data", "é/data"),
        ] {
            assert_eq!(mounts.map(text), mapped, "{text}");
        }
    }

    #[test]
    fn sub_paths_stay_in_their_folder() {
        let folder = Path::new("/v");
        assert_eq!(below(folder, "a/b").unwrap(), Path::new("/v/a/b"));
        assert_eq!(below(folder, "../x"), None);
        assert_eq!(below(folder, "/x"), None);
    }
}
