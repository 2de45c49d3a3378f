//! Words that others know.

/// The last words of an importer that has done its work.
pub const DONE: &str = "Import Complete";
/// What the last words of an importer begin with that no further attempt can help.
pub const REFUSED: &str = "refused: ";

/// On a claim: whether its data is complete. Nobody makes a disk in one that is not.
pub(crate) const POPULATED: &str = "orlop.dev/populated";
/// On a claim, as CDI has it: what its data is.
pub(crate) const CONTENT_TYPE: &str = "cdi.kubevirt.io/storage.contentType";
/// On a claim, as CDI has it: how far the pod is that fills it.
pub(crate) const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
/// On a claim, as CDI has it: the DataVolume whose data it has already.
pub(crate) const POPULATED_FOR: &str = "cdi.kubevirt.io/storage.populatedFor";
/// On a DataVolume, as CDI has it: the claim that has its data already.
pub(crate) const PREPOPULATED: &str = "cdi.kubevirt.io/storage.prePopulated";
/// On a DataVolume, as CDI has it: its claim is filled even if nobody uses it yet.
pub(crate) const IMMEDIATE: &str = "cdi.kubevirt.io/storage.bind.immediate.requested";
/// On a DataVolume, as CDI has it: the pod that filled its claim stays.
pub(crate) const RETAIN_POD: &str = "cdi.kubevirt.io/storage.pod.retainAfterCompletion";
/// On a storage class: claims that name none are of it.
pub(crate) const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The same for the disks of virtual machines, which comes first.
pub(crate) const DEFAULT_VIRT_CLASS: &str = "storageclass.kubevirt.io/is-default-virt-class";
