//! A back end that creates a bridge for each network, in the current network namespace.
//!
//! # Theory
//!
//! The kernel is the registry: the name of a bridge is derived from its owner's uid, so nothing
//! else is stored. `ensure` lists the addresses and refuses a range that another of these bridges
//! has. Then it creates the bridge, adds the gateway's address, removes other addresses and brings
//! the bridge up. Each step first checks whether it is needed. It needs `CAP_NET_ADMIN`.

use super::{Allocation, Backend, BackendError, Desired, Existing, Owner};
use crate::subnet::Subnet;
use futures::TryStreamExt;
use futures::future::{BoxFuture, FutureExt};
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::{Handle, LinkBridge, LinkUnspec};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use tokio::sync::Mutex;

/// What our bridges' names start with; the rest is a hash of the uid, 15 bytes in all (the kernel's
/// limit).
pub(super) const DEVICE_PREFIX: &str = "spn";

/// Bridges by rtnetlink.
#[derive(Debug)]
pub struct LinuxBackend {
    handle: Handle,
    /// Held during a change, so that two owners cannot both find a range free.
    change: Mutex<()>,
}

impl LinuxBackend {
    /// Opens a netlink socket in the network namespace of the calling thread, and the connection
    /// that its owner runs.
    ///
    /// # Errors
    ///
    /// The kernel returns no socket.
    pub fn open() -> std::io::Result<(Self, impl Future<Output = ()> + Send)> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok((Self { handle, change: Mutex::new(()) }, connection))
    }

    /// The name of an owner's bridge.
    pub fn device(owner: &Owner) -> String {
        // FNV-1a, 48 bits of it: stable over releases, which the standard library's hasher is not.
        let hash = owner.uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{DEVICE_PREFIX}{:012x}", hash >> 16)
    }

    async fn index_of(&self, device: &str) -> Result<Option<u32>, BackendError> {
        let mut links = self.handle.link().get().match_name(device.to_owned()).execute();
        match links.try_next().await {
            Ok(link) => Ok(link.map(|link| link.header.index)),
            Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == ENODEV => {
                Ok(None)
            }
            Err(error) => Err(refused("look up", device, error)),
        }
    }

    /// Every IPv4 address of this namespace, with the device it is on.
    async fn addresses(&self, device: &str) -> Result<Vec<AddressMessage>, BackendError> {
        let addresses = self.handle.address().get().execute();
        addresses
            .try_collect()
            .await
            .map_err(|error| refused("list the addresses for", device, error))
    }

    /// Refuses a range that overlaps that of another of these bridges.
    async fn check_free(
        &self,
        device: &str,
        own: Option<u32>,
        wanted: Subnet,
    ) -> Result<(), BackendError> {
        let mut links = self.handle.link().get().execute();
        let mut ours = Vec::new();
        while let Some(link) =
            links.try_next().await.map_err(|error| refused("list the links for", device, error))?
        {
            let name = link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) if name.starts_with(DEVICE_PREFIX) => {
                    Some(name.clone())
                }
                _ => None,
            });
            ours.extend(name.map(|name| (link.header.index, name)));
        }
        for message in self.addresses(device).await? {
            let holder = ours
                .iter()
                .find(|(index, _)| *index == message.header.index && Some(*index) != own);
            if let (Some((_, holder)), Some(held)) = (holder, subnet_of(&message))
                && held.overlaps(&wanted)
            {
                return Err(BackendError::Overlap { wanted, held, holder: holder.clone() });
            }
        }
        Ok(())
    }
}

/// `ENODEV`: no such device.
const ENODEV: i32 = 19;

fn refused(what: &'static str, device: &str, error: rtnetlink::Error) -> BackendError {
    BackendError::Kernel { what, device: device.to_owned(), source: error.into() }
}

fn address_of(message: &AddressMessage) -> Option<Ipv4Addr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(IpAddr::V4(address)) => Some(*address),
        _ => None,
    })
}

/// The range of an address message, if a Network can have it.
fn subnet_of(message: &AddressMessage) -> Option<Subnet> {
    let address = address_of(message)?;
    let bits = message.header.prefix_len;
    let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits.into())?).unwrap_or(0);
    let network = Ipv4Addr::from_bits(address.to_bits() & mask);
    format!("{network}/{bits}").parse().ok()
}

impl Backend for LinuxBackend {
    fn ensure<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Desired,
    ) -> BoxFuture<'a, Result<Allocation, BackendError>> {
        async move {
            let _one_at_a_time = self.change.lock().await;
            let device = Self::device(owner);
            let found = self.index_of(&device).await?;
            self.check_free(&device, found, desired.subnet).await?;
            let mut changed = found.is_none();
            let index = match found {
                Some(index) => index,
                None => {
                    let link = LinkBridge::new(&device).build();
                    self.handle
                        .link()
                        .add(link)
                        .execute()
                        .await
                        .map_err(|error| refused("create", &device, error))?;
                    let missing =
                        || refused("find again", &device, rtnetlink::Error::RequestFailed);
                    self.index_of(&device).await?.ok_or_else(missing)?
                }
            };
            let mut has_gateway = false;
            for message in self
                .addresses(&device)
                .await?
                .into_iter()
                .filter(|message| message.header.index == index)
            {
                let Some(address) = address_of(&message) else { continue };
                if address == desired.gateway
                    && message.header.prefix_len == desired.subnet.prefix_bits()
                {
                    has_gateway = true;
                } else {
                    changed = true;
                    let removed = self.handle.address().del(message).execute().await;
                    removed.map_err(|error| refused("take an address from", &device, error))?;
                }
            }
            if !has_gateway {
                changed = true;
                let add = self.handle.address().add(
                    index,
                    IpAddr::V4(desired.gateway),
                    desired.subnet.prefix_bits(),
                );
                add.execute()
                    .await
                    .map_err(|error| refused("give the gateway's address to", &device, error))?;
            }
            let up = LinkUnspec::new_with_index(index).up().build();
            self.handle
                .link()
                .set(up)
                .execute()
                .await
                .map_err(|error| refused("bring up", &device, error))?;
            Ok(Allocation { device, changed })
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Option<Existing>, BackendError>> {
        async move {
            let device = Self::device(owner);
            let Some(index) = self.index_of(&device).await? else { return Ok(None) };
            let addresses = self.addresses(&device).await?;
            // A bridge without an address is incomplete.
            let desired = addresses
                .iter()
                .filter(|message| message.header.index == index)
                .find_map(|message| {
                    let (subnet, gateway) = (subnet_of(message)?, address_of(message)?);
                    Some(Desired { subnet, gateway })
                });
            Ok(desired.map(|desired| Existing { desired, device }))
        }
        .boxed()
    }

    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool, BackendError>> {
        async move {
            let _one_at_a_time = self.change.lock().await;
            let device = Self::device(owner);
            let Some(index) = self.index_of(&device).await? else { return Ok(false) };
            self.handle
                .link()
                .del(index)
                .execute()
                .await
                .map_err(|error| refused("delete", &device, error))?;
            Ok(true)
        }
        .boxed()
    }
}
