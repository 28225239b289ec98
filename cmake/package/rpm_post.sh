# Registers who comes first where another libnccl.so.2 is installed; by default the other.
update-alternatives --install /etc/ld.so.conf.d/00-tutti-nccl.conf tutti-nccl /usr/lib/tutti/ld.so.conf.last 20
update-alternatives --install /etc/ld.so.conf.d/00-tutti-nccl.conf tutti-nccl /usr/lib/tutti/ld.so.conf.first 10
/sbin/ldconfig
