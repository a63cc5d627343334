//! A reader of redb files, page by page, without redb.
//!
//! redb verifies page checksums only when it repairs a file, and a damaged page makes it fail or
//! panic at any call. This reader follows redb's trees from their roots, compares each page with
//! the checksum in its parent, and continues after a page that does not match. It writes nothing.
//! redb describes the layout in `docs/design.md`: a header with two commit slots, then regions of
//! pages. A page is a leaf of rows, or a branch of page numbers with their checksums.
//!
//! Data is used only after its checksum matched, except the header, which has its own checksums.

use std::{io, os::unix::fs::FileExt};
use twox_hash::XxHash3_128;

use super::lock::Locked;

const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
/// Flags in the byte after the magic number: which slot is newer, whether the file was not closed,
/// and whether pages were synced before the slot.
const SECOND_SLOT: u8 = 1;
const NOT_CLOSED: u8 = 2;
const TWO_PHASE: u8 = 4;
/// Offsets of the commit slots, and the length of a slot with its checksum at the end.
const SLOTS: [usize; 2] = [64, 192];
const SLOT_BYTES: usize = 128;
const HEAD_BYTES: usize = 320;
/// Maximum depth of a tree. A branch has at least two children, so no valid file is deeper.
const DEPTH_MAX: usize = 64;
/// Maximum order of a page, which is 2 to this number of 4 KiB pages. A row is at most as long as a
/// transaction, 1.5 MiB.
const ORDER_MAX: u32 = 12;

const LEAF: u8 = 1;
const BRANCH: u8 = 2;

/// The root of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Root {
    page: u64,
    checksum: u128,
}

/// A table: its tree, its number of rows, and the length of its keys and rows if that is fixed.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) rows: u64,
    root: Option<Root>,
    key_bytes: Option<usize>,
    row_bytes: Option<usize>,
}

/// A state of the file: the roots of the user's tables and of redb's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    transaction: u64,
    user: Option<Root>,
    system: Option<Root>,
}

/// An unreadable part of a tree: the keys after `after`, up to and including `upto`. `None` is no
/// bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) after: Option<Vec<u8>>,
    pub(super) upto: Option<Vec<u8>>,
}

/// A file opened for reading.
#[derive(Debug)]
pub(super) struct Pages {
    file: Locked,
    length: u64,
    page_bytes: u64,
    region_head_bytes: u64,
    region_bytes: u64,
    /// The states at which the file may be opened, the right one first.
    pub(super) slots: Vec<Slot>,
    /// Whether a crash may have left the first state incomplete; then the second is the right one.
    pub(super) may_be_torn: bool,
    /// Whether the newest state differs from the one in the header in a way that no crash explains.
    pub(super) is_head_damaged: bool,
}

impl Pages {
    /// `None` if the file is not redb's, or its header is unreadable.
    pub(super) fn of(file: Locked) -> io::Result<Option<Self>> {
        let length = file.metadata()?.len();
        let mut head = [0; HEAD_BYTES];
        match file.read_exact_at(&mut head, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let number = |at: usize| u64::from(u32_at(&head, at).unwrap_or(0));
        let page_bytes = number(12);
        let is_known = head.starts_with(MAGIC)
            && (512..=1 << 16).contains(&page_bytes)
            && number(20) > 0
            && number(20) <= 1 << 20;
        if !is_known {
            return Ok(None);
        }
        let flags = head[MAGIC.len()];
        let newer = usize::from(flags & SECOND_SLOT != 0);
        let first = slot(&head[SLOTS[newer]..][..SLOT_BYTES]);
        let second = slot(&head[SLOTS[1 - newer]..][..SLOT_BYTES]);
        let is_closed = flags & NOT_CLOSED == 0;
        let may_be_torn = !is_closed && flags & TWO_PHASE == 0;
        let is_second_newer = match (first, second) {
            (Some(first), Some(second)) => second.transaction > first.transaction,
            _ => false,
        };
        let is_head_damaged = !may_be_torn && first.is_none() || is_closed && is_second_newer;
        let slots: Vec<Slot> = match is_second_newer && (may_be_torn || is_closed) {
            true => second.into_iter().chain(first).collect(),
            false => first.into_iter().chain(second).collect(),
        };
        Ok(Some(Self {
            file,
            length,
            page_bytes,
            region_head_bytes: number(16) * page_bytes,
            region_bytes: (number(16) + number(20)) * page_bytes,
            slots,
            may_be_torn,
            is_head_damaged,
        }))
    }

    /// The tables of a state, the user's before redb's own, and the lost parts of the tables of
    /// tables.
    pub(super) fn tables(&self, slot: &Slot) -> io::Result<(Vec<Table>, Vec<Lost>)> {
        let (mut tables, mut lost) = (Vec::new(), Vec::new());
        for root in [slot.user, slot.system] {
            let directory =
                Table { name: String::new(), rows: 0, root, key_bytes: None, row_bytes: None };
            self.walk(
                &directory,
                &mut |leaf| {
                    for n in 0..leaf.n_rows() {
                        let row = leaf.row(n);
                        tables.extend(row.and_then(|(name, row)| table(name, row)));
                    }
                },
                &mut |part| lost.push(part),
            )?;
        }
        Ok((tables, lost))
    }

    /// Searches the whole file for pages that look like a table of tables, and returns their tables
    /// whose roots match. The page itself may be damaged.
    pub(super) fn scan_tables(&self) -> io::Result<Vec<Vec<Table>>> {
        let directory =
            Table { name: String::new(), rows: 0, root: None, key_bytes: None, row_bytes: None };
        let mut found = Vec::new();
        self.scan(&directory, &mut |leaf| {
            let rows = (0..leaf.n_rows()).filter_map(|n| leaf.row(n));
            let tables: Vec<_> = rows.filter_map(|(name, row)| table(name, row)).collect();
            if !tables.is_empty() {
                found.push(tables);
            }
        })?;
        for tables in &mut found {
            let mut right = Vec::new();
            for table in tables.drain(..) {
                if self.is_root_right(&table)? {
                    right.push(table);
                }
            }
            *tables = right;
        }
        Ok(found)
    }

    fn is_root_right(&self, table: &Table) -> io::Result<bool> {
        let Some(root) = table.root else { return Ok(true) };
        let Some(page) = self.page(root.page)? else { return Ok(false) };
        let end = match page[0] {
            LEAF => Leaf { page: &page, at: root.page, table }.end(),
            BRANCH => Branch { page: &page, key_bytes: table.key_bytes }.end(),
            _ => None,
        };
        let content = end.and_then(|end| page.get(..end));
        Ok(content.is_some_and(|content| XxHash3_128::oneshot(content) == root.checksum))
    }

    /// Reads a table in key order. Passes its leaves to `seen`, and reports the unreadable parts.
    pub(super) fn walk(
        &self,
        table: &Table,
        seen: &mut dyn FnMut(&Leaf<'_>),
        lost: &mut dyn FnMut(Lost),
    ) -> io::Result<()> {
        let Some(root) = table.root else { return Ok(()) };
        let all = Lost { after: None, upto: None };
        self.walk_below(table, root, DEPTH_MAX, all, seen, lost)
    }

    fn walk_below(
        &self,
        table: &Table,
        at: Root,
        depth: usize,
        bounds: Lost,
        seen: &mut dyn FnMut(&Leaf<'_>),
        lost: &mut dyn FnMut(Lost),
    ) -> io::Result<()> {
        let Some(page) = self.page(at.page)?.filter(|_| depth > 0) else {
            lost(bounds);
            return Ok(());
        };
        let is_right = |end: Option<usize>| {
            let content = end.and_then(|end| page.get(..end));
            content.is_some_and(|content| XxHash3_128::oneshot(content) == at.checksum)
        };
        match page[0] {
            LEAF => {
                let leaf = Leaf { page: &page, at: at.page, table };
                if is_right(leaf.end()) { seen(&leaf) } else { lost(bounds) }
            }
            BRANCH => {
                let branch = Branch { page: &page, key_bytes: table.key_bytes };
                if !is_right(branch.end()) {
                    lost(bounds);
                    return Ok(());
                }
                let mut after = bounds.after;
                for n in 0..=branch.n_keys() {
                    let upto = branch.key(n).map(<[u8]>::to_vec).or_else(|| bounds.upto.clone());
                    let part = Lost { after: after.take(), upto: upto.clone() };
                    match branch.child(n) {
                        Some(child) => {
                            self.walk_below(table, child, depth - 1, part, seen, lost)?
                        }
                        None => lost(part),
                    }
                    after = upto;
                }
            }
            _ => lost(bounds),
        }
        Ok(())
    }

    /// A page's bytes. `None` if the page is outside the file or the disk cannot read it.
    fn page(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        let Ok(order) = u32::try_from(number >> 59) else { return Ok(None) };
        if order > ORDER_MAX {
            return Ok(None);
        }
        let index = number & (0xf_ffff >> order);
        let region = number >> 20 & 0xf_ffff;
        let bytes = self.page_bytes << order;
        let start =
            self.page_bytes + region * self.region_bytes + self.region_head_bytes + index * bytes;
        if start + bytes > self.length {
            return Ok(None);
        }
        let mut page = vec![0; usize::try_from(bytes).unwrap_or(0)];
        match self.file.read_exact_at(&mut page, start) {
            Ok(()) => Ok(Some(page).filter(|page| !page.is_empty())),
            // An unreadable sector counts as damage.
            Err(error) if error.raw_os_error() == Some(EIO) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The row at a place from [`Leaf::place`]. Does not verify the page's checksum.
    pub(super) fn row_at<T>(
        &self,
        table: &Table,
        place: RowPlace,
        read: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> io::Result<Option<T>> {
        let Some(page) = self.page(place.page)? else { return Ok(None) };
        let leaf = Leaf { page: &page, at: place.page, table };
        Ok(leaf.row(place.row.into()).map(|(key, row)| read(key, row)))
    }

    /// Passes everything in the file that looks like a leaf of this table to `seen`, including free
    /// pages. The caller must verify each row by other means.
    pub(super) fn scan(&self, table: &Table, seen: &mut dyn FnMut(&Leaf<'_>)) -> io::Result<()> {
        let n_regions = self.length.div_ceil(self.region_bytes.max(1));
        for region in 0..n_regions.min(1 << 20) {
            let n_pages = (self.region_bytes - self.region_head_bytes) / self.page_bytes;
            for index in 0..n_pages {
                let Some(page) = self.page(region << 20 | index)? else { break };
                if page[0] != LEAF {
                    continue;
                }
                let leaf = Leaf { page: &page, at: region << 20 | index, table };
                if leaf.end().is_some_and(|end| end <= page.len()) {
                    seen(&leaf);
                    continue;
                }
                // A page of a higher order may begin here.
                for order in 1..=u64::from(ORDER_MAX) {
                    if index % (1 << order) != 0 {
                        break;
                    }
                    let number = order << 59 | region << 20 | index >> order;
                    let Some(page) = self.page(number)? else { break };
                    let leaf = Leaf { page: &page, at: number, table };
                    if leaf.end().is_some_and(|end| end <= page.len()) {
                        seen(&leaf);
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The error code for an unreadable sector.
const EIO: i32 = 5;

/// A commit slot, if its checksum matches.
fn slot(bytes: &[u8]) -> Option<Slot> {
    let (content, checksum) = bytes.split_last_chunk::<16>()?;
    if XxHash3_128::oneshot(content) != u128::from_le_bytes(*checksum) {
        return None;
    }
    let root = |is_there: usize, at: usize| match content.get(is_there)? {
        0 => None,
        _ => root(content.get(at..)?),
    };
    Some(Slot { transaction: u64_at(content, 104)?, user: root(1, 8), system: root(2, 40) })
}

/// A root in redb's encoding: page number, checksum, number of rows.
fn root(bytes: &[u8]) -> Option<Root> {
    let checksum = bytes.get(8..24)?.first_chunk::<16>()?;
    Some(Root { page: u64_at(bytes, 0)?, checksum: u128::from_le_bytes(*checksum) })
}

/// A row of the table of tables. `None` if it is not a plain table.
fn table(name: &[u8], row: &[u8]) -> Option<Table> {
    const SIMPLE: u8 = 3;
    let width = |at: usize| match row.get(at)? {
        0 => None,
        _ => usize::try_from(u32_at(row, at + 1)?).ok(),
    };
    if *row.first()? != SIMPLE {
        return None;
    }
    Some(Table {
        name: String::from_utf8_lossy(name).into_owned(),
        rows: u64_at(row, 1)?,
        root: if *row.get(9)? == 0 { None } else { root(row.get(10..)?) },
        key_bytes: width(42),
        row_bytes: width(47),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?))
}

fn count_at(bytes: &[u8], at: usize) -> usize {
    let count = bytes.get(at..).and_then(<[u8]>::first_chunk::<2>);
    count.map_or(0, |count| u16::from_le_bytes(*count).into())
}

fn offset_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(bytes, at)?).ok()
}

/// The place of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowPlace {
    page: u64,
    row: u16,
}

/// A page of rows: a count, the ends of keys and of rows if their lengths vary, the keys, the rows.
pub(super) struct Leaf<'p> {
    page: &'p [u8],
    at: u64,
    table: &'p Table,
}

impl Leaf<'_> {
    pub(super) fn n_rows(&self) -> usize {
        count_at(self.page, 2)
    }

    /// The place of row `n`.
    pub(super) fn place(&self, n: usize) -> RowPlace {
        RowPlace { page: self.at, row: u16::try_from(n).unwrap_or(u16::MAX) }
    }

    fn keys_start(&self) -> usize {
        let n_ends = usize::from(self.table.key_bytes.is_none())
            + usize::from(self.table.row_bytes.is_none());
        4 + 4 * n_ends * self.n_rows()
    }

    /// The end of the first `n` keys.
    fn keys_end(&self, n: usize) -> Option<usize> {
        match (n, self.table.key_bytes) {
            (0, _) => Some(self.keys_start()),
            (n, Some(width)) => self.keys_start().checked_add(width.checked_mul(n)?),
            (n, None) => offset_at(self.page, 4 + 4 * (n - 1)),
        }
    }

    /// The end of the first `n` rows.
    fn rows_end(&self, n: usize) -> Option<usize> {
        let start = self.keys_end(self.n_rows())?;
        match (n, self.table.row_bytes) {
            (0, _) => Some(start),
            (n, Some(width)) => start.checked_add(width.checked_mul(n)?),
            (n, None) => {
                let before = if self.table.key_bytes.is_none() { 4 * self.n_rows() } else { 0 };
                offset_at(self.page, 4 + before + 4 * (n - 1))
            }
        }
    }

    /// The end of the content. `None` if this cannot be a leaf.
    fn end(&self) -> Option<usize> {
        if self.n_rows() == 0 { None } else { self.rows_end(self.n_rows()) }
    }

    /// Key and row `n`.
    pub(super) fn row(&self, n: usize) -> Option<(&[u8], &[u8])> {
        if n >= self.n_rows() {
            return None;
        }
        let key = self.page.get(self.keys_end(n)?..self.keys_end(n + 1)?)?;
        let row = self.page.get(self.rows_end(n)?..self.rows_end(n + 1)?)?;
        Some((key, row))
    }
}

/// An inner page: a count of keys, the children's checksums, their page numbers, and the keys
/// between them.
struct Branch<'p> {
    page: &'p [u8],
    key_bytes: Option<usize>,
}

impl Branch<'_> {
    fn n_keys(&self) -> usize {
        count_at(self.page, 2)
    }

    /// The end of the first `n` keys.
    fn keys_end(&self, n: usize) -> Option<usize> {
        let n_keys = self.n_keys();
        let children_end = 8 + 24 * (n_keys + 1);
        match (n, self.key_bytes) {
            (0, Some(_)) => Some(children_end),
            (0, None) => Some(children_end + 4 * n_keys),
            (n, Some(width)) => children_end.checked_add(width.checked_mul(n)?),
            (n, None) => offset_at(self.page, children_end + 4 * (n - 1)),
        }
    }

    fn end(&self) -> Option<usize> {
        if self.n_keys() == 0 { None } else { self.keys_end(self.n_keys()) }
    }

    /// The largest key that child `n` may have.
    fn key(&self, n: usize) -> Option<&[u8]> {
        if n >= self.n_keys() {
            return None;
        }
        self.page.get(self.keys_end(n)?..self.keys_end(n + 1)?)
    }

    fn child(&self, n: usize) -> Option<Root> {
        let checksum = self.page.get(8 + 16 * n..)?.first_chunk::<16>()?;
        let page = u64_at(self.page, 8 + 16 * (self.n_keys() + 1) + 8 * n)?;
        Some(Root { page, checksum: u128::from_le_bytes(*checksum) })
    }
}
