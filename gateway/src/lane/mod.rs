//! One LUN: ring ↔ SCSI engine ↔ disk, with the in-flight table and task management.
