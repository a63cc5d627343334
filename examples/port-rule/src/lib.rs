//! Opens and closes ports on nodes, as [`PortRule`](api::PortRule) objects say.
//!
//! ```text
//!  PortRule ──watch──▶ agent of node a ──▶ firewall of a       NodeFirewall a ──watch──▶ controller
//!     ▲                     └──────────── reports ───────────▶      …                      │
//!     └──────────────────────── status: applied on n of m nodes ───────────────────────────┘
//! ```
//!
//! | part | what it does |
//! |---|---|
//! | [`agent`] | runs on every node; applies the rules that select the node to its firewall, repairs it, and reports in one [`NodeFirewall`](api::NodeFirewall) object |
//! | [`controller`] | runs once; sums the reports in each rule's status, and keeps a deleted rule until no node has it |
//! | [`backend`] | a trait and its implementations: nftables, iptables-nft, firewalld |
//! | [`ruleset`] | the desired content of a firewall, as a pure function of the rules |

pub mod agent;
pub mod api;
pub mod backend;
pub mod controller;
pub mod ruleset;
