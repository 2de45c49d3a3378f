//! The fields of both specs and where they go.

/// What an instancetype's field sets: its value, where it goes, and the paths of a template that sets it too.
pub(super) const SIZES: &[(&str, &str, &str, &str, &str)] = &[
    ("cpu.guest", "2", "/spec/domain/cpu/sockets", "2", "spec.template.spec.domain.cpu.sockets"),
    (
        "cpu.dedicatedCPUPlacement",
        "true",
        "/spec/domain/cpu/dedicatedCpuPlacement",
        "true",
        "spec.template.spec.domain.cpu.dedicatedCpuPlacement",
    ),
    (
        "cpu.isolateEmulatorThread",
        "true",
        "/spec/domain/cpu/isolateEmulatorThread",
        "true",
        "spec.template.spec.domain.cpu.isolateEmulatorThread",
    ),
    ("cpu.maxSockets", "8", "/spec/domain/cpu/maxSockets", "8", "spec.template.spec.domain.cpu.maxSockets"),
    ("cpu.model", "\"Nehalem\"", "/spec/domain/cpu/model", "\"Nehalem\"", "spec.template.spec.domain.cpu.model"),
    (
        "cpu.numa",
        "{\"guestMappingPassthrough\":{}}",
        "/spec/domain/cpu/numa",
        "{\"guestMappingPassthrough\":{}}",
        "spec.template.spec.domain.cpu.numa",
    ),
    (
        "cpu.realtime",
        "{\"mask\":\"0-3\"}",
        "/spec/domain/cpu/realtime",
        "{\"mask\":\"0-3\"}",
        "spec.template.spec.domain.cpu.realtime",
    ),
    ("memory.guest", "\"1Gi\"", "/spec/domain/memory/guest", "\"1Gi\"", "spec.template.spec.domain.memory.guest"),
    (
        "memory.hugepages",
        "{\"pageSize\":\"2Mi\"}",
        "/spec/domain/memory/hugepages",
        "{\"pageSize\":\"2Mi\"}",
        "spec.template.spec.domain.memory.hugepages",
    ),
    (
        "memory.maxGuest",
        "\"4Gi\"",
        "/spec/domain/memory/maxGuest",
        "\"4Gi\"",
        "spec.template.spec.domain.memory.maxGuest",
    ),
    (
        "memory.overcommitPercent",
        "25",
        "/spec/domain/resources/requests/memory",
        "\"768Mi\"",
        "spec.template.spec.domain.resources.requests.memory",
    ),
    ("annotations", "{\"a\":\"b\"}", "/metadata/annotations", "{\"a\":\"b\"}", ""),
    (
        "gpus",
        "[{\"name\":\"x\"}]",
        "/spec/domain/devices/gpus",
        "[{\"name\":\"x\"}]",
        "spec.template.spec.domain.devices.gpus",
    ),
    (
        "hostDevices",
        "[{\"name\":\"x\"}]",
        "/spec/domain/devices/hostDevices",
        "[{\"name\":\"x\"}]",
        "spec.template.spec.domain.devices.hostDevices",
    ),
    (
        "ioThreads.supplementalPoolThreadCount",
        "3",
        "/spec/domain/ioThreads/supplementalPoolThreadCount",
        "3",
        "spec.template.spec.domain.ioThreads.supplementalPoolThreadCount",
    ),
    (
        "ioThreadsPolicy",
        "\"auto\"",
        "/spec/domain/ioThreadsPolicy",
        "\"auto\"",
        "spec.template.spec.domain.ioThreadsPolicy",
    ),
    (
        "launchSecurity",
        "{\"sev\":{}}",
        "/spec/domain/launchSecurity",
        "{\"sev\":{}}",
        "spec.template.spec.domain.launchSecurity",
    ),
    ("nodeSelector", "{\"a\":\"b\"}", "/spec/nodeSelector", "{\"a\":\"b\"}", "spec.template.spec.nodeSelector"),
    ("schedulerName", "\"mine\"", "/spec/schedulerName", "\"mine\"", "spec.template.spec.schedulerName"),
];

/// What a preference's field fills in: its value, where it goes, and what is there then if not the value itself.
pub(super) const LIKES: &[(&str, &str, &str, &str)] = &[
    ("annotations", "{\"a\":\"b\"}", "/metadata/annotations", ""),
    ("clock.preferredClockOffset", "{\"utc\":{}}", "/spec/domain/clock/utc", "{}"),
    ("clock.preferredTimer", "{\"kvm\":{\"present\":false}}", "/spec/domain/clock/timer", ""),
    ("cpu.preferredCPUFeatures", "[{\"name\":\"vmx\"}]", "/spec/domain/cpu/features", ""),
    ("devices.preferredAutoattachGraphicsDevice", "false", "/spec/domain/devices/autoattachGraphicsDevice", ""),
    ("devices.preferredAutoattachInputDevice", "true", "/spec/domain/devices/autoattachInputDevice", ""),
    ("devices.preferredAutoattachMemBalloon", "false", "/spec/domain/devices/autoattachMemBalloon", ""),
    ("devices.preferredAutoattachPodInterface", "false", "/spec/domain/devices/autoattachPodInterface", ""),
    ("devices.preferredAutoattachSerialConsole", "false", "/spec/domain/devices/autoattachSerialConsole", ""),
    ("devices.preferredBlockMultiQueue", "true", "/spec/domain/devices/blockMultiQueue", ""),
    ("devices.preferredCdromBus", "\"scsi\"", "/spec/domain/devices/disks/1/cdrom/bus", ""),
    ("devices.preferredDisableHotplug", "true", "/spec/domain/devices/disableHotplug", ""),
    ("devices.preferredDiskBlockSize", "{\"matchVolume\":{}}", "/spec/domain/devices/disks/0/blockSize", ""),
    ("devices.preferredDiskBus", "\"usb\"", "/spec/domain/devices/disks/3/disk/bus", ""),
    ("devices.preferredDiskCache", "\"none\"", "/spec/domain/devices/disks/0/cache", ""),
    ("devices.preferredDiskDedicatedIoThread", "true", "/spec/domain/devices/disks/0/dedicatedIOThread", ""),
    ("devices.preferredDiskIO", "\"native\"", "/spec/domain/devices/disks/0/io", ""),
    ("devices.preferredInputBus", "\"virtio\"", "/spec/domain/devices/inputs/0/bus", ""),
    ("devices.preferredInputType", "\"tablet\"", "/spec/domain/devices/inputs/0/type", ""),
    ("devices.preferredInterfaceMasquerade", "{}", "/spec/domain/devices/interfaces/0/masquerade", ""),
    ("devices.preferredInterfaceModel", "\"e1000\"", "/spec/domain/devices/interfaces/1/model", ""),
    ("devices.preferredLunBus", "\"scsi\"", "/spec/domain/devices/disks/2/lun/bus", ""),
    ("devices.preferredNetworkInterfaceMultiQueue", "true", "/spec/domain/devices/networkInterfaceMultiqueue", ""),
    ("devices.preferredPanicDeviceModel", "\"isa\"", "/spec/domain/devices/panicDevices/0/model", ""),
    ("devices.preferredRng", "{}", "/spec/domain/devices/rng", ""),
    ("devices.preferredSoundModel", "\"ac97\"", "/spec/domain/devices/sound/model", ""),
    ("devices.preferredTPM", "{\"persistent\":true}", "/spec/domain/devices/tpm", ""),
    ("devices.preferredUseVirtioTransitional", "true", "/spec/domain/devices/useVirtioTransitional", ""),
    ("devices.preferredVideoType", "\"virtio\"", "/spec/domain/devices/video/type", ""),
    ("devices.preferredVirtualGPUOptions", "{\"display\":{}}", "/spec/domain/devices/gpus/0/virtualGPUOptions", ""),
    ("features.preferredAcpi", "{\"enabled\":false}", "/spec/domain/features/acpi", ""),
    ("features.preferredApic", "{\"endOfInterrupt\":true}", "/spec/domain/features/apic", ""),
    ("features.preferredKvm", "{\"hidden\":true}", "/spec/domain/features/kvm", ""),
    ("features.preferredPvspinlock", "{\"enabled\":true}", "/spec/domain/features/pvspinlock", ""),
    ("features.preferredSmm", "{\"enabled\":true}", "/spec/domain/features/smm", ""),
    ("firmware.preferredEfi", "{\"secureBoot\":true}", "/spec/domain/firmware/bootloader/efi", ""),
    ("firmware.preferredUseBios", "true", "/spec/domain/firmware/bootloader/bios", "{}"),
    ("firmware.preferredUseEfi", "true", "/spec/domain/firmware/bootloader/efi", "{}"),
    ("machine.preferredMachineType", "\"pc-q35-9.0\"", "/spec/domain/machine/type", ""),
    ("preferredArchitecture", "\"arm64\"", "/spec/architecture", ""),
    ("preferredLaunchSecurity", "{\"snp\":{}}", "/spec/domain/launchSecurity", ""),
    ("preferredSubdomain", "\"sub\"", "/spec/subdomain", ""),
    ("preferredTerminationGracePeriodSeconds", "7", "/spec/terminationGracePeriodSeconds", ""),
];

/// Fields of a preference that act together with something else; the test that shows it.
pub(super) const ELSEWHERE: &[&str] = &[
    "cpu.preferredCPUTopology",          // topology::tests
    "cpu.spreadOptions",                 // topology::tests
    "preferSpreadSocketToCoreRatio",     // topology::tests
    "firmware.preferredUseBiosSerial",   // firmware_is_chosen_once
    "firmware.preferredUseSecureBoot",   // firmware_is_chosen_once
    "requirements.architecture",         // requirements::tests
    "requirements.cpu",                  // requirements::tests
    "requirements.memory",               // requirements::tests
    "volumes.preferredStorageClassName", // a_storage_class_goes_to_data_volumes_without_one
];
