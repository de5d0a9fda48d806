#!/bin/sh
# Boots systemd on a copy of this machine that forgets everything. It runs as the
# first process of new namespaces; $1 is a folder to work in, $2 a package to lay
# into /root.
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp "$2" "$1/root/root/"
cd "$1/root"
rm -rf usr/sbin/policy-rc.d etc/dpkg/dpkg.cfg.d # those of a container start nothing, and leave documents out
rm -f var/lib/man-db/auto-update # takes longer than all the rest
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
for node in null zero full random urandom tty; do
	touch "dev/$node"
	mount --bind "/dev/$node" "dev/$node"
done
ln -s /proc/self/fd dev/fd
mkdir dev/shm dev/pts old
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
pivot_root . old
umount -l /old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=basic.target
