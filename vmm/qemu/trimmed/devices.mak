# The devices of the trimmed QEMU, as Kconfig symbols of its source (hw/*/Kconfig): the microvm
# machine, with what it selects itself (ISA bus and serial port, APIC, IOAPIC, PIC, PIT, RTC,
# virtio-mmio transports), and behind virtio-mmio what parbake's machines use.
CONFIG_PCI_DEVICES=n
CONFIG_MICROVM=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VIRTIO_RNG=y
CONFIG_VIRTIO_NET=y
