//! The iSCSI target (RFC 7143): a sans-IO protocol core and a thin tokio driver. Reaches SCSI only through the ring.
