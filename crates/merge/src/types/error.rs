//! Error codes of the calls, with Linux's numbers.

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// Error code of a failed call, with Linux's number.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(i32)]
        pub enum Errno { $($(#[$doc])* $name = $value),* }

        impl Errno {
            /// Returns the error with this number in Linux; `None` if no memory call returns it.
            ///
            /// ```
            /// use vmarea_merge::types::Errno;
            ///
            /// let error = Errno::from_number(12).expect("a memory error");
            /// assert_eq!((error, error.name(), error.number()), (Errno::ENOMEM, "ENOMEM", 12));
            /// ```
            pub fn from_number(number: i32) -> Option<Errno> {
                match number { $($value => Some(Errno::$name),)* _ => None }
            }

            /// Returns the symbolic name.
            pub fn name(self) -> &'static str {
                match self { $(Errno::$name => stringify!($name)),* }
            }
        }
    };
}

errnos! {
    /// Operation not permitted: insufficient privilege, or a sealed mapping.
    EPERM = 1,
    /// The requested entry does not exist.
    ENOENT = 2,
    /// The process does not exist.
    ESRCH = 3,
    /// Interrupted system call.
    EINTR = 4,
    /// Input/output error.
    EIO = 5,
    /// Bad file descriptor.
    EBADF = 9,
    /// Temporarily unavailable; try again.
    EAGAIN = 11,
    /// Out of memory, or the range is not mapped.
    ENOMEM = 12,
    /// The file or its mapping does not permit the access.
    EACCES = 13,
    /// Bad address.
    EFAULT = 14,
    /// The resource is in use.
    EBUSY = 16,
    /// A mapping already exists.
    EEXIST = 17,
    /// The file cannot be mapped.
    ENODEV = 19,
    /// Invalid argument.
    EINVAL = 22,
    /// Text file busy.
    ETXTBSY = 26,
    /// The file would be larger than its file system permits.
    EFBIG = 27,
    /// No space or resource is available.
    ENOSPC = 28,
    /// The call is not implemented.
    ENOSYS = 38,
    /// The value is too large for its type.
    EOVERFLOW = 75,
    /// The operation is not supported for this mapping.
    EOPNOTSUPP = 95,
    /// The page is poisoned (hardware memory error).
    EHWPOISON = 133,
}

impl Errno {
    /// Returns Linux's error number, a positive number.
    pub fn number(self) -> i32 {
        self as i32
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Errno {}

impl From<vmarea_sync::OutOfMemory> for Errno {
    fn from(_: vmarea_sync::OutOfMemory) -> Errno {
        Errno::ENOMEM
    }
}
