if [ "$1" = 0 ]; then
  update-alternatives --remove tutti-nccl /usr/lib/tutti/ld.so.conf.first
  update-alternatives --remove tutti-nccl /usr/lib/tutti/ld.so.conf.last
fi
