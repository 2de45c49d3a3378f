//! Names that a launcher, virt-handler and virt-controller must agree on.

/// The volume of a launcher's pod with its sockets. The node's agent finds it by this name, whatever the pod mounts it as.
pub const SOCKETS: &str = "sockets";
/// The socket that a launcher serves the protocol on; it appears when the launcher is ready.
pub const LAUNCHER_SOCKET: &str = "launcher-sock";
/// The socket on which a launcher takes the network of its pod.
pub const NETWORK_SOCKET: &str = "network-sock";
/// The volume of a launcher's pod with the files that only it and its node's agent use: a folder for each instance, by its UID.
pub const PRIVATE: &str = "private";
/// The volume of a launcher's pod with the disks of containers, where nodes do not mount images.
pub const CONTAINER_DISKS: &str = "container-disks";
/// What belongs to the image with the guest's kernel: its volume, the socket of its container, the directory with its files.
pub const KERNEL_BOOT: &str = "kernel-boot-volume";

/// What belongs to the image of a container disk, by its volume's index in the instance: `disk_0.sock` is the socket of its container,
/// `disk_0.img` the disk.
#[must_use]
pub fn container_disk(index: usize) -> String {
    format!("disk_{index}")
}

/// Where whoever carries a guest away connects to its launcher, in the instance's folder; its first line names the channel.
pub const LEAVING_SOCKET: &str = "leaving.sock";
/// Where QEMU listens for a guest's memory. The first that connects is its source.
pub const MEMORY_SOCKET: &str = "arriving.sock";
/// Where QEMU listens for the contents of its disks.
pub const DISKS_SOCKET: &str = "arriving-disks.sock";
/// The channel of a guest's memory.
pub const MEMORY_CHANNEL: &str = "memory";

/// The channel of a disk, by its device.
#[must_use]
pub fn disk_channel(device: &str) -> String {
    format!("disk {device}")
}
