// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/class/optinc/cardN: Documentation/ABI/testing/sysfs-class-optinc. What
 * the card said of itself; reading does not touch it.
 */
#include <linux/sysfs.h>

#include "optinc.h"

#define SHOW(_name, _format, ...)						\
static ssize_t _name##_show(struct device *dev, struct device_attribute *attr,	\
			    char *buf)						\
{										\
	struct optinc_device *odev = dev_get_drvdata(dev);			\
	struct optinc_identity *id = &odev->identity;				\
	ssize_t n;								\
										\
	mutex_lock(&odev->identity_lock);					\
	n = sysfs_emit(buf, _format "\n", __VA_ARGS__);				\
	mutex_unlock(&odev->identity_lock);					\
	return n;								\
}										\
static DEVICE_ATTR_RO(_name)

SHOW(serial, "%s", id->serial);
SHOW(model, "%s", id->model);
SHOW(interface_version, "%u.%u", id->interface_version >> 16, id->interface_version & 0xffff);
SHOW(firmware_version, "%#010x", id->firmware_version);
SHOW(port, "%u", id->port);
SHOW(ports, "%u", id->ports);
SHOW(lanes, "%u", id->lanes);
SHOW(lanes_up, "%u", READ_ONCE(id->lanes_up));
SHOW(lane_mbps, "%u", id->lane_mbps);

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	static const char * const names[] = {
		[OPTINC_PROBING]	= "probing",
		[OPTINC_ONLINE]		= "online",
		[OPTINC_RESETTING]	= "resetting",
		[OPTINC_DEAD]		= "dead",
		[OPTINC_GONE]		= "gone",
	};
	struct optinc_device *odev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", names[READ_ONCE(odev->state)]);
}
static DEVICE_ATTR_RO(state);

static ssize_t resets_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct optinc_device *odev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%llu\n", READ_ONCE(odev->resets));
}
static DEVICE_ATTR_RO(resets);

static struct attribute *card_attrs[] = {
	&dev_attr_serial.attr,
	&dev_attr_model.attr,
	&dev_attr_interface_version.attr,
	&dev_attr_firmware_version.attr,
	&dev_attr_port.attr,
	&dev_attr_ports.attr,
	&dev_attr_lanes.attr,
	&dev_attr_lanes_up.attr,
	&dev_attr_lane_mbps.attr,
	&dev_attr_state.attr,
	&dev_attr_resets.attr,
	NULL
};

static const struct attribute_group card_group = {
	.attrs = card_attrs,
};

const struct attribute_group *optinc_card_groups[] = {
	&card_group,
	NULL
};
