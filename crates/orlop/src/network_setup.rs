//! `orlop network-setup`: the child that enters a pod's network namespace; see `network::guest_network`.

use anyhow::Context as _;

pub(crate) fn run() -> anyhow::Result<()> {
    network::guest_network::child().context("set up a pod's network")
}
