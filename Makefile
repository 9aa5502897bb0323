# SPDX-License-Identifier: GPL-2.0-or-later
# OptINC: everything but the kernel module, which Kbuild makes.
#
#   make demo    install what is missing, build, average real gradients on emulated cards
#   make check   install what is missing, build, run all tests, virtual machines among them
#   make help    the rest

CC		?= gcc
CLANG		?= clang
PREFIX		?= /usr/local
LIBDIR		?= $(PREFIX)/lib
INCLUDEDIR	?= $(PREFIX)/include
BINDIR		?= $(PREFIX)/bin
MANDIR		?= $(PREFIX)/share/man
COMPLETIONDIR	?= $(PREFIX)/share/bash-completion/completions
BUILD		?= build
SANITIZE	?=

VERSION_H	:= lib/include/optinc/optinc.h
version_part	 = $(shell awk '$$2 == "OPTINC_$(1)" { print $$3 }' $(VERSION_H))
VERSION		:= $(call version_part,VERSION_MAJOR).$(call version_part,VERSION_MINOR).$(call version_part,VERSION_PATCH)
ABI		:= $(call version_part,ABI_VERSION)

CFLAGS		?= -O2 -g
WARNINGS	:= -Wall -Wextra -Werror
BASE_CFLAGS	:= -std=gnu11 -fPIC -fvisibility=hidden -ffp-contract=off -MMD -MP \
		   $(WARNINGS) -Iuapi -Ilib/include -I. $(addprefix -fsanitize=,$(SANITIZE))
BASE_LDFLAGS	:= $(addprefix -fsanitize=,$(SANITIZE))

include lib/Makefile.inc
include emulator/Makefile.inc
include emulator/vfio-user/Makefile.inc
include utils/Makefile.inc
include selftests/Makefile.inc
include selftests/vm/Makefile.inc
include selftests/driver/Makefile.inc
include driver/Makefile.inc

.DEFAULT_GOAL := all
.PHONY: all lib emulator utils deps demo demo-vm check bench clean install uninstall help

all: lib emulator utils $(OPTINC_EMU)

lib: $(LIB_SO) $(BUILD)/lib/liboptinc.pc
emulator: $(EMU_SO)
utils: $(UTILS)

# Objects of the library and the tools; per-file flags as OBJ_CFLAGS.
$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(BASE_CFLAGS) $(CFLAGS) $(OBJ_CFLAGS) -c -o $@ $<

deps:
	@packaging/install-deps

# The demo prefers the gradients beside the repository over the set it ships.
GRADIENTS ?= $(firstword $(wildcard ../shared/data/gradients) utils/demo/data)

demo: deps
	@echo "demo: building"
	@$(MAKE) --no-print-directory -s -j$$(nproc) all
	@$(BUILD)/bin/optinc-demo $(GRADIENTS)

check:
	@packaging/install-deps vm
	@echo "check: building"
	@$(MAKE) --no-print-directory -s -j$$(nproc) all tests driver-tests $(CARD_PROBE)
	@BUILD=$(BUILD) selftests/vm/build-driver
	@BUILD=$(BUILD) CC="$(CC)" selftests/run

# The same gradients through the driver: four virtual machines, one card each.
demo-vm:
	@packaging/install-deps vm
	@echo "demo-vm: building"
	@$(MAKE) --no-print-directory -s -j$$(nproc) all
	@BUILD=$(BUILD) selftests/vm/build-driver
	@BUILD=$(BUILD) selftests/vm/demo $(GRADIENTS)

bench: deps
	@$(MAKE) --no-print-directory -s -j$$(nproc) all benches
	@BUILD=$(BUILD) selftests/bench/run

clean:
	rm -rf $(BUILD)

help:
	@echo "make demo                   average real gradients on four emulated cards"
	@echo "make check                  all tests"
	@echo "make demo-vm                the same through driver and PCIe, in four virtual machines"
	@echo "make bench                  against Open MPI and memcpy, as ratios in one run"
	@echo "make [all]                  library, emulator, tools into $(BUILD)/"
	@echo "make install [DESTDIR= PREFIX=]"
	@echo "make deps                   apt packages that the above need"
	@echo "make driver [KDIR=]         the kernel module"
	@echo "make check-driver           the driver's tests alone, in virtual machines [TESTS= CASES= ROUNDS=]"
	@echo "make conformance CARD=pci:...  which clauses of the card interface a vendor's card keeps"
	@echo "make check-debug            the same on a debug kernel, with coverage [SHORT=1]"
	@echo "make soak [BYTES=20G]       that much traffic through the driver, every bit compared"
	@echo "make check-vm               the emulated card in a virtual machine"
	@echo "make vm                     a shell in a virtual machine with four cards"
	@echo "make SANITIZE=address,undefined BUILD=build-asan ..."

install: all
	install -d $(DESTDIR)$(LIBDIR)/optinc $(DESTDIR)$(LIBDIR)/pkgconfig \
		$(DESTDIR)$(INCLUDEDIR)/optinc $(DESTDIR)$(INCLUDEDIR)/linux \
		$(DESTDIR)$(BINDIR) $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(COMPLETIONDIR)
	install -m 755 $(LIB_SO) $(DESTDIR)$(LIBDIR)/
	ln -sf $(notdir $(LIB_SO)) $(DESTDIR)$(LIBDIR)/liboptinc.so.$(ABI)
	ln -sf liboptinc.so.$(ABI) $(DESTDIR)$(LIBDIR)/liboptinc.so
	install -m 755 $(EMU_SO) $(DESTDIR)$(LIBDIR)/optinc/
	install -m 644 $(BUILD)/lib/liboptinc.pc $(DESTDIR)$(LIBDIR)/pkgconfig/
	install -m 644 lib/include/optinc/*.h $(DESTDIR)$(INCLUDEDIR)/optinc/
	install -m 644 uapi/linux/optinc.h $(DESTDIR)$(INCLUDEDIR)/linux/
	install -m 755 $(UTILS) $(OPTINC_EMU) $(DESTDIR)$(BINDIR)/
	install -m 644 Documentation/man/*.1 $(DESTDIR)$(MANDIR)/man1/
	install -m 644 packaging/completions/* $(DESTDIR)$(COMPLETIONDIR)/

uninstall:
	rm -f $(DESTDIR)$(LIBDIR)/liboptinc.so* $(DESTDIR)$(LIBDIR)/optinc/liboptinc-emu.so \
		$(DESTDIR)$(LIBDIR)/pkgconfig/liboptinc.pc $(DESTDIR)$(INCLUDEDIR)/linux/optinc.h \
		$(addprefix $(DESTDIR)$(BINDIR)/,$(notdir $(UTILS) $(OPTINC_EMU))) \
		$(addprefix $(DESTDIR)$(MANDIR)/man1/,$(notdir $(wildcard Documentation/man/*.1))) \
		$(addprefix $(DESTDIR)$(COMPLETIONDIR)/,$(notdir $(wildcard packaging/completions/*)))
	rm -rf $(DESTDIR)$(INCLUDEDIR)/optinc
	-rmdir $(DESTDIR)$(LIBDIR)/optinc

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
