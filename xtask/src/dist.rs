//! `cargo xtask dist`: the program, and packages that carry it for users of other languages.
//!
//! | file | for | content |
//! |---|---|---|
//! | `setpoint-VERSION-py3-none-manylinux_…whl` | PyPI | `packages/python` and the program |
//! | `setpoint-VERSION.tgz` | npm | `packages/npm` and the program |
//!
//! Nothing is published. The archives are deterministic: the same program and the same files make
//! the same bytes.

mod elf;
mod npm;
mod wheel;

use self::elf::Platform;
use crate::cargo::{root, target_folder};
use crate::guided;
use crate::program;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Mode of the program in archives.
const EXECUTABLE: u32 = 0o755;
/// Mode of other files.
const READABLE: u32 = 0o644;

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An already built program, which nothing is built beside.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["profile", "guided"])]
    program: Option<PathBuf>,
    /// Build the program twice: to take a profile of what it does under load, and guided by this
    /// profile. Takes an hour on two cores.
    #[arg(long, conflicts_with = "profile")]
    guided: bool,
    /// The profile that the program is built with.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// The folder of the packages. Default: `dist` in the target folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How hard to compress: 1 is fast, 9 is small.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u8).range(1..=9))]
    level: u8,
}

/// What the packages are made of.
struct Parts<'a> {
    /// The program's bytes.
    program: &'a [u8],
    platform: &'a Platform,
    /// The folder of the workspace.
    root: &'a Path,
    /// The level of compression.
    level: u8,
}

/// A file of an archive.
struct Entry {
    path: String,
    bytes: Vec<u8>,
    mode: u32,
}

impl Entry {
    fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into(), mode: READABLE }
    }

    fn executable(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { mode: EXECUTABLE, ..Self::new(path, bytes) }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None if args.guided => {
            guided::train()?;
            guided::build()?
        }
        None => program::build(&args.profile)?,
    };
    let out = match &args.out {
        Some(out) => out.clone(),
        None => target_folder()?.join("dist"),
    };
    fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let bytes = fs::read(&program).with_context(|| format!("read {}", program.display()))?;
    let platform = Platform::of(&bytes).with_context(|| format!("use {}", program.display()))?;
    let root = root();
    let parts = Parts { program: &bytes, platform: &platform, root: &root, level: args.level };
    for (name, archive) in [wheel::pack(&parts)?, npm::pack(&parts)?] {
        let path = out.join(name);
        fs::write(&path, archive).with_context(|| format!("write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Reads files below a folder of the workspace, as entries below `to`.
fn files(root: &Path, folder: &str, names: &[&str], to: &str) -> Result<Vec<Entry>> {
    let entry = |name: &&str| {
        let path = root.join(folder).join(name);
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(Entry::new(format!("{to}/{name}"), bytes))
    };
    names.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::io::Read as _;

    /// Packs this test program, which is as good as any.
    /// A package's file name and bytes.
    type Package = (String, Vec<u8>);

    fn packed(pack: fn(&Parts<'_>) -> Result<Package>) -> Package {
        let program = fs::read(std::env::current_exe().unwrap()).unwrap();
        let platform = Platform::of(&program).unwrap();
        // Enough of it to be compressed.
        let program = &program[..100_000];
        pack(&Parts { program, platform: &platform, root: &root(), level: 1 }).unwrap()
    }

    #[test]
    fn archives_are_the_same_each_time() {
        assert!(packed(wheel::pack) == packed(wheel::pack));
        assert!(packed(npm::pack) == packed(npm::pack));
    }

    /// Its names, tags and record are what installers check.
    #[test]
    fn wheel_is_valid() {
        use base64::Engine as _;
        use sha2::Digest as _;
        let (name, bytes) = packed(wheel::pack);
        let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
        let mut read = |path: &str| {
            let mut bytes = Vec::new();
            zip.by_name(path).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        };
        let info = format!("setpoint-{VERSION}.dist-info");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let wheel = text(read(&format!("{info}/WHEEL")));
        let tag = wheel.lines().find_map(|line| line.strip_prefix("Tag: ")).unwrap();
        assert_eq!(name, format!("setpoint-{VERSION}-{tag}.whl"));
        assert!(tag.starts_with("py3-none-manylinux_2_"), "{tag}");
        let record = text(read(&format!("{info}/RECORD")));
        let mut recorded = Vec::new();
        for line in record.lines() {
            let [path, hash, size] = line.split(',').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            recorded.push(path.to_owned());
            if path.ends_with("/RECORD") {
                assert_eq!((hash, size), ("", ""));
                continue;
            }
            let bytes = read(path);
            let digest = sha2::Sha256::digest(&bytes);
            let digest = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest);
            assert_eq!((hash, size), (&*format!("sha256={digest}"), &*bytes.len().to_string()));
        }
        let mut names: Vec<String> =
            zip.file_names().map(|name| name.unwrap().into_owned()).collect();
        names.sort();
        recorded.sort();
        assert_eq!(names, recorded);
        let program = format!("setpoint-{VERSION}.data/scripts/setpoint");
        assert_eq!(zip.by_name(&program).unwrap().unix_mode().unwrap() & 0o777, EXECUTABLE);
    }

    #[test]
    fn npm_package_names_its_platform_and_has_its_files() {
        let (name, bytes) = packed(npm::pack);
        assert_eq!(name, format!("setpoint-{VERSION}.tgz"));
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let (mut names, mut manifest) = (Vec::new(), Value::Null);
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            match &*path {
                "package/package.json" => manifest = serde_json::from_reader(&mut entry).unwrap(),
                "package/bin/setpoint" => assert_eq!(entry.header().mode().unwrap(), EXECUTABLE),
                _ => {}
            }
            names.push(path);
        }
        assert_eq!(manifest["version"], VERSION);
        assert_eq!(manifest["os"], serde_json::json!(["linux"]));
        assert_eq!(manifest["bin"]["setpoint"], "bin/setpoint");
        for listed in manifest["exports"].as_object().unwrap().values() {
            for file in listed.as_object().unwrap().values().filter_map(Value::as_str) {
                let path = file.replace("./", "package/");
                assert!(names.contains(&path), "{path} is among {names:?}");
            }
        }
    }
}
