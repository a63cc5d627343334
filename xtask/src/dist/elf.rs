//! The requirements of a built program: the processor and the version of glibc.

use ::elf::ElfBytes;
use ::elf::abi::{DT_NEEDED, EM_AARCH64, EM_X86_64};
use ::elf::endian::AnyEndian;
use anyhow::{Context, Result, bail};

/// Libraries that every system with glibc has: those of the manylinux standard that Rust programs
/// use.
const LIBRARIES: &[&str] = &[
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];

/// The entry of a program with packed relocations: of the System V ABI's "Relative Relocation
/// Table".
const DT_RELR: i64 = 36;
/// The first glibc that reads packed relocations.
const RELR_GLIBC: (u32, u32) = (2, 36);

/// Where a program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Platform {
    /// Python's name of the processor.
    pub(super) machine: &'static str,
    /// Node's name of it.
    pub(super) cpu: &'static str,
    /// The oldest glibc with everything that the program uses.
    pub(super) glibc: (u32, u32),
}

impl Platform {
    /// Reads a program's headers.
    ///
    /// # Errors
    ///
    /// If it is no program for Linux with glibc, or needs a library that not every such system has.
    pub(super) fn of(program: &[u8]) -> Result<Self> {
        let file = ElfBytes::<AnyEndian>::minimal_parse(program).context("read it as ELF")?;
        let (machine, cpu) = match file.ehdr.e_machine {
            EM_X86_64 => ("x86_64", "x64"),
            EM_AARCH64 => ("aarch64", "arm64"),
            other => bail!("there are no packages for the processor {other} of ELF"),
        };
        let (symbols, strings) = file
            .dynamic_symbol_table()
            .context("read its symbols")?
            .context("it is linked with no library: build it for glibc")?;
        let mut glibc = None;
        for entry in file.dynamic().context("read what it needs")?.into_iter().flatten() {
            match entry.d_tag {
                DT_NEEDED => {
                    let name = strings.get(usize::try_from(entry.d_val())?)?;
                    if !LIBRARIES.contains(&name) {
                        bail!("it needs {name}, which not every system has");
                    }
                }
                DT_RELR => glibc = Some(RELR_GLIBC),
                _ => {}
            }
        }
        let versions = file.symbol_version_table().context("read its versions")?;
        let versions = versions.context("its symbols have no versions: build it for glibc")?;
        for i in 0..symbols.len() {
            let Some(requirement) = versions.get_requirement(i)? else { continue };
            glibc = glibc.max(requirement.name.strip_prefix("GLIBC_").and_then(version));
        }
        let glibc = glibc.context("it asks for no version of glibc")?;
        Ok(Self { machine, cpu, glibc })
    }
}

/// `2.34` or `2.2.5`. The third number does not count in tags.
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    Some((major.parse().ok()?, rest.split('.').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_symbols_are_parsed() {
        assert_eq!(version("2.34"), Some((2, 34)));
        assert_eq!(version("2.2.5"), Some((2, 2)));
        assert_eq!(version("PRIVATE"), None);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Platform::of(b"#!/bin/sh\n").is_err());
    }
}
