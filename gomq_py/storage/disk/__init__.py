"""The seam to the file system: every call that changes a file or folder, and the data folder itself."""
