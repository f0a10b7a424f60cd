//! `linux/target_core_user.h` as the kernel has it (5.15 and later), with its sizes and offsets asserted.
